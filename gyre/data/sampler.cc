#include "gyre/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::data {
namespace {

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

std::uint64_t positions_per_step(const SamplerOptions& options) {
  const bool sharded = options.sharing == Sharing::kSharded;
  return options.batch_per_rank * (sharded ? static_cast<std::uint64_t>(options.ranks) : 1);
}

std::uint64_t steps_per_epoch(const SamplerOptions& options) {
  GYRE_CHECK(options.ranks >= 1);
  GYRE_CHECK(options.batch_per_rank >= 1U);
  const std::uint64_t size = positions_per_step(options);
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

StreamShare::StreamShare(const SamplerOptions& options, int rank)
    : streams_(options.shuffling == Shuffling::kBlocks ? options.streams : 1), offset_(0), count_(streams_) {
  if (options.sharing != Sharing::kSharded) return;
  const auto ranks = static_cast<std::uint64_t>(options.ranks);
  const auto number = static_cast<std::uint64_t>(rank);
  offset_ = number * options.batch_per_rank;
  if (streams_ == 1 || ranks == 1 || positions_per_step(options) % streams_ != 0) return;
  if (streams_ % ranks == 0) {
    count_ = streams_ / ranks;
    first_ = number * count_;
  } else if (ranks % streams_ == 0) {
    sharers_ = ranks / streams_;
    sharer_ = number % sharers_;
    first_ = number / sharers_;
    count_ = 1;
  } else {
    return;
  }
  divided_ = true;
}

std::uint64_t StreamShare::place(std::uint64_t begin, std::uint64_t index) const {
  if (!divided_) return offset_ + index;
  // The rank's streams follow each other at the places `ahead`, `ahead` + 1 … of every `streams_`, round the end.
  const std::uint64_t ahead = (first_ + streams_ - begin % streams_) % streams_;
  const std::uint64_t round_the_end = ahead + count_ > streams_ ? ahead + count_ - streams_ : 0;
  const std::uint64_t which = index % count_;
  const std::uint64_t within = which < round_the_end ? which : ahead + which - round_the_end;
  return (index / count_ * sharers_ + sharer_) * streams_ + within;
}

EpochOrder::EpochOrder(const SamplerOptions& options, std::uint64_t epoch, int rank, std::uint64_t first_position)
    : options_(options), first_position_(first_position), steps_(steps_per_epoch(options)), share_(options, rank) {
  GYRE_CHECK((rank >= 0 && rank < options.ranks));
  GYRE_CHECK(first_position <= options.count);
  if (first_position > 0) {
    const std::uint64_t left = options.count - first_position;
    const std::uint64_t size = positions_per_step(options);
    steps_ = left / size + (options.remainder == Remainder::kPad && left % size > 0 ? 1 : 0);
  }
  const RandomKey key{options.seed, stream_of(options, epoch, rank)};
  if (options.shuffling == Shuffling::kFull) full_.emplace(options.count, key.seed, key.stream);
  if (options.shuffling == Shuffling::kBlocks) {
    blocks_.emplace(BlockShuffleOptions{.count = options.count,
                                        .block_ends = options.block_ends,
                                        .streams = options.streams,
                                        .open_blocks = options.open_blocks},
                    key);
  }
}

std::uint64_t EpochOrder::sample_at(std::uint64_t position) const {
  switch (options_.shuffling) {
    case Shuffling::kNone: return position;
    case Shuffling::kFull: return full_->at(position);
    case Shuffling::kBlocks: return blocks_->at(position);
  }
  return position;
}

std::vector<std::uint64_t> EpochOrder::upcoming_blocks(std::uint64_t position, std::size_t most) const {
  if (blocks_) return blocks_->upcoming(position, most, share_.first(), share_.count());
  std::vector<std::uint64_t> samples;
  if (full_ || !options_.block_ends) return samples;
  const std::vector<std::uint64_t>& ends = *options_.block_ends;
  for (auto end = std::ranges::upper_bound(ends, position); end != ends.end() && samples.size() < most; ++end) {
    if (*end < options_.count) samples.push_back(*end);
  }
  return samples;
}

std::uint64_t default_open_blocks(std::uint64_t largest_block_bytes, std::uint64_t streams,
                                  std::uint64_t budget_bytes) {
  constexpr std::uint64_t kOpenBytes = std::uint64_t{256} << 20;
  constexpr std::uint64_t kDefault = 16;
  const std::uint64_t room = std::min(kOpenBytes, budget_bytes / 4);
  return std::clamp<std::uint64_t>(room / streams / std::max<std::uint64_t>(largest_block_bytes, 1), 1, kDefault);
}

RankBatch EpochOrder::batch(std::uint64_t step, int rank) const {
  GYRE_CHECK(step < steps_);
  GYRE_CHECK((rank >= 0 && rank < options_.ranks));
  const std::uint64_t per_rank = options_.batch_per_rank;
  const std::uint64_t size = positions_per_step(options_);
  const bool sharded = options_.sharing == Sharing::kSharded;
  const std::uint64_t begin = first_position_ + step * size;
  const std::uint64_t step_counted = std::min(size, options_.count - begin);
  const StreamShare share = share_of_rank(rank);
  RankBatch batch;
  batch.first_position = static_cast<std::uint64_t>(rank) * per_rank;
  while (batch.present < per_rank && share.place(begin, batch.present) < step_counted) ++batch.present;
  batch.counted = batch.present;
  batch.counted_globally = sharded ? step_counted : step_counted * static_cast<std::uint64_t>(options_.ranks);
  batch.samples.reserve(per_rank);
  BlockShuffle::Round round;
  for (std::uint64_t i = 0; i < per_rank; ++i) {
    const std::uint64_t position = position_of(step, rank, i);
    batch.samples.push_back(blocks_ ? blocks_->at(position, round) : sample_at(position));
  }
  return batch;
}

StreamShare EpochOrder::share_of_rank(int rank) const { return StreamShare(options_, rank); }

std::uint64_t EpochOrder::position_of(std::uint64_t step, int rank, std::uint64_t index) const {
  const StreamShare share = share_of_rank(rank);
  const std::uint64_t begin = first_position_ + step * positions_per_step(options_);
  const std::uint64_t position = begin + share.place(begin, index);
  if (position < options_.count) return position;
  // Padding: from the front of the order, and of the same stream, so that nothing else has to be read for it.
  const std::uint64_t padding = position % options_.count;
  if (!share.is_divided()) return padding;
  const std::uint64_t of_stream = padding - padding % options_.streams + position % options_.streams;
  return of_stream < options_.count ? of_stream : padding;
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
