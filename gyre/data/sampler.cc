#include "gyre/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::data {
namespace {

/// Samples of one global step as one order sees it.
std::uint64_t step_size(const SamplerOptions& options) {
  const bool sharded = options.sharing == Sharing::kSharded;
  return options.batch_per_rank * (sharded ? static_cast<std::uint64_t>(options.ranks) : 1);
}

/// Epochs use the streams below 2^32; orders of single ranks lie above them.
std::uint64_t stream_of(const SamplerOptions& options, std::uint64_t epoch, int rank) {
  const bool own = options.sharing == Sharing::kEveryRankAll;
  return own ? epoch + (static_cast<std::uint64_t>(rank + 1) << 32) : epoch;
}

}  // namespace

std::vector<std::uint64_t> epoch_permutation(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) {
  const Shuffle shuffle(count, seed, epoch);
  std::vector<std::uint64_t> order;
  order.reserve(count);
  for (std::uint64_t position = 0; position < count; ++position) order.push_back(shuffle.at(position));
  return order;
}

std::uint64_t steps_per_epoch(const SamplerOptions& options) {
  GYRE_CHECK(options.ranks >= 1);
  GYRE_CHECK(options.batch_per_rank >= 1U);
  const std::uint64_t size = step_size(options);
  if (options.count == 0) throw Error(ErrorCode::kInvalidArgument, "the data set holds no samples");
  if (options.remainder == Remainder::kPad) return (options.count + size - 1) / size;
  if (options.count < size) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} samples do not fill one global batch of {} ({} ranks x {}), and incomplete batches are "
                            "dropped; use a smaller batch",
                            options.count, size, options.ranks, options.batch_per_rank));
  }
  return options.count / size;
}

EpochOrder::EpochOrder(const SamplerOptions& options, std::uint64_t epoch, int rank)
    : options_(options),
      steps_(steps_per_epoch(options)),
      full_(options.count, options.seed, stream_of(options, epoch, rank)),
      blocks_(options.count, options.block, options.seed, stream_of(options, epoch, rank)) {
  GYRE_CHECK((rank >= 0 && rank < options.ranks));
}

std::uint64_t EpochOrder::sample_at(std::uint64_t position) const {
  switch (options_.shuffling) {
    case Shuffling::kNone: return position;
    case Shuffling::kFull: return full_.at(position);
    case Shuffling::kBlocks: return blocks_.at(position);
  }
  return position;
}

RankBatch EpochOrder::batch(std::uint64_t step, int rank) const {
  GYRE_CHECK(step < steps_);
  GYRE_CHECK((rank >= 0 && rank < options_.ranks));
  const std::uint64_t per_rank = options_.batch_per_rank;
  const std::uint64_t size = step_size(options_);
  const bool sharded = options_.sharing == Sharing::kSharded;
  const std::uint64_t step_counted = std::min(size, options_.count - step * size);
  const std::uint64_t offset = sharded ? static_cast<std::uint64_t>(rank) * per_rank : 0;
  RankBatch batch;
  batch.first_position = static_cast<std::uint64_t>(rank) * per_rank;
  batch.present = step_counted > offset ? std::min(per_rank, step_counted - offset) : 0;
  batch.counted = batch.present;
  batch.counted_globally = sharded ? step_counted : step_counted * static_cast<std::uint64_t>(options_.ranks);
  batch.samples.reserve(per_rank);
  for (std::uint64_t i = 0; i < per_rank; ++i) batch.samples.push_back(sample_at(position_of(step, rank, i)));
  return batch;
}

std::uint64_t EpochOrder::position_of(std::uint64_t step, int rank, std::uint64_t index) const {
  const bool sharded = options_.sharing == Sharing::kSharded;
  const std::uint64_t offset = sharded ? static_cast<std::uint64_t>(rank) * options_.batch_per_rank : 0;
  return (step * step_size(options_) + offset + index) % options_.count;
}

Share share_of(std::uint64_t count, int rank, int ranks) {
  GYRE_CHECK((rank >= 0 && rank < ranks));
  const auto size = static_cast<std::uint64_t>(ranks);
  const auto index = static_cast<std::uint64_t>(rank);
  // The first `count % ranks` ranks take one more.
  const std::uint64_t base = count / size;
  const std::uint64_t extra = count % size;
  const std::uint64_t first = index * base + std::min(index, extra);
  return {first, first + base + (index < extra ? 1 : 0)};
}

}  // namespace gyre::data
