#include "gyre/data/internal/block_ends.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace gyre::data::internal {

void append_blocks(std::vector<std::uint64_t>& ends, std::uint64_t samples,
                   const std::function<std::uint64_t(std::uint64_t)>& end_bytes, std::uint64_t block_bytes) {
  if (samples == 0) return;
  const std::uint64_t first = ends.empty() ? 0 : ends.back();
  const std::uint64_t total = end_bytes(samples - 1);
  const std::uint64_t parts = std::max<std::uint64_t>(1, total / block_bytes + (total % block_bytes == 0 ? 0 : 1));
  // One byte where a wrong number of samples leaves none to each.
  const std::uint64_t part_bytes = std::max<std::uint64_t>(1, total / parts + (total % parts == 0 ? 0 : 1));
  std::uint64_t part_end = part_bytes;
  for (std::uint64_t sample = 0; sample + 1 < samples; ++sample) {
    const std::uint64_t end = end_bytes(sample);
    if (end < part_end) continue;
    ends.push_back(first + sample + 1);
    part_end = (end / part_bytes + 1) * part_bytes;
  }
  ends.push_back(first + samples);
}

SampleBlocks blocks_of(std::vector<std::uint64_t> ends, std::uint64_t largest_bytes) {
  SampleBlocks blocks{.ends = nullptr, .largest_bytes = largest_bytes};
  const bool all_single = !ends.empty() && ends.size() == ends.back();
  if (!all_single) blocks.ends = std::make_shared<const std::vector<std::uint64_t>>(std::move(ends));
  return blocks;
}

}  // namespace gyre::data::internal
