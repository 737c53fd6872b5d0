#include "gyre/train/gradient_exchange.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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

std::vector<std::optional<std::uint64_t>> gather_hashes(GradientExchange& exchange, std::uint64_t hash) {
  // Each rank fills its three places and leaves the others at zero; halves of 32 bits are exact in a double.
  constexpr std::size_t kPlaces = 3;
  const auto size = static_cast<std::size_t>(exchange.size());
  const auto rank = static_cast<std::size_t>(exchange.rank());
  std::vector<double> places(kPlaces * size, 0.0);
  places[kPlaces * rank] = 1;
  places[kPlaces * rank + 1] = static_cast<double>(hash >> 32);
  places[kPlaces * rank + 2] = static_cast<double>(hash & 0xffffffffU);
  exchange.sum(places);
  std::vector<std::optional<std::uint64_t>> hashes(size);
  for (std::size_t i = 0; i < size; ++i) {
    if (places[kPlaces * i] == 0) continue;
    hashes[i] =
        static_cast<std::uint64_t>(places[kPlaces * i + 1]) << 32 | static_cast<std::uint64_t>(places[kPlaces * i + 2]);
  }
  return hashes;
}

void check_replicas(GradientExchange& exchange, std::uint64_t hash, std::string_view what) {
  const std::vector<std::optional<std::uint64_t>> hashes = gather_hashes(exchange, hash);
  const auto first = std::ranges::find_if(hashes, [](const auto& one) { return one.has_value(); });
  if (first == hashes.end()) return;
  std::vector<std::string> different;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank) {
    if (hashes[rank] && *hashes[rank] != **first) {
      different.push_back(fmt::format("rank {} has {:016x}", rank, *hashes[rank]));
    }
  }
  if (different.empty()) return;
  throw Error(ErrorCode::kMismatch,
              fmt::format("the ranks' copies of the network differ {}: rank {} has {:016x}, {}. They started equal and "
                          "got equal gradients, so a rank computes differently: compare the ranks' processors, library "
                          "versions and OMP_NUM_THREADS",
                          what, first - hashes.begin(), **first, fmt::join(different, ", ")));
}

}  // namespace gyre::train
