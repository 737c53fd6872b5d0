#include "gyre/train/gradient_exchange.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gyre/base/error.h"
#include "gyre/engine/runtime.h"
#include "gyre/train/data_timeline.h"

namespace gyre::train {

void LocalExchange::zero_gradients() {
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void LocalExchange::note_wait(std::string_view row, const data::BatchWait& wait) {
  if (runtime_ != nullptr) add_wait_to_timeline(runtime_->engine(), row, wait);
}

std::vector<std::uint64_t> gather_hashes(GradientExchange& exchange, std::uint64_t hash) {
  // Each rank fills its two places and leaves the others at zero; halves of 32 bits are exact in a double.
  const auto size = static_cast<std::size_t>(exchange.size());
  const auto rank = static_cast<std::size_t>(exchange.rank());
  std::vector<double> halves(2 * size, 0.0);
  halves[2 * rank] = static_cast<double>(hash >> 32);
  halves[2 * rank + 1] = static_cast<double>(hash & 0xffffffffU);
  exchange.sum(halves);
  std::vector<std::uint64_t> hashes;
  for (std::size_t i = 0; i < size; ++i) {
    hashes.push_back(static_cast<std::uint64_t>(halves[2 * i]) << 32 | static_cast<std::uint64_t>(halves[2 * i + 1]));
  }
  return hashes;
}

void check_replicas(GradientExchange& exchange, std::uint64_t hash, std::string_view what) {
  const std::vector<std::uint64_t> hashes = gather_hashes(exchange, hash);
  std::vector<std::string> different;
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] != hashes[0]) different.push_back(fmt::format("rank {} has {:016x}", rank, hashes[rank]));
  }
  if (different.empty()) return;
  throw Error(ErrorCode::kMismatch,
              fmt::format("the ranks' copies of the network differ {}: rank 0 has {:016x}, {}. They started equal and "
                          "got equal gradients, so a rank computes differently: compare the ranks' processors, library "
                          "versions and OMP_NUM_THREADS",
                          what, hashes[0], fmt::join(different, ", ")));
}

}  // namespace gyre::train
