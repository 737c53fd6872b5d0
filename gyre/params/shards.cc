#include "gyre/params/shards.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/error.h"

namespace gyre::params {
namespace {

std::uint64_t piece_count(std::uint64_t values, std::uint64_t most) {
  return values / most + (values % most > 0 ? 1 : 0);
}

void check(std::span<const std::uint64_t> tensor_values, const ShardOptions& options) {
  if (options.servers < 1 || options.servers > kMostServers || options.values_per_block < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} servers and blocks of {} values: 1 to {} servers, and at least 1 value, are possible",
                            options.servers, options.values_per_block, kMostServers));
  }
  std::uint64_t blocks = 0;  // At most so many, as small tensors share one.
  for (const std::uint64_t values : tensor_values) blocks += piece_count(values, options.values_per_block);
  if (blocks > kMostBlocks) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("parameters in {} blocks of {} values: at most {} blocks are possible", blocks,
                            options.values_per_block, kMostBlocks));
  }
}

/// The pieces of one tensor, none larger than a block; their sizes differ by one at most.
std::vector<Range> pieces_of(std::uint32_t tensor, std::uint64_t values, std::uint64_t most) {
  const std::uint64_t count = piece_count(values, most);
  std::vector<Range> pieces;
  std::uint64_t first = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t last = values / count * (i + 1) + std::min(i + 1, values % count);
    pieces.push_back({tensor, first, last - first});
    first = last;
  }
  return pieces;
}

}  // namespace

std::vector<Block> divide_into_blocks(std::span<const std::uint64_t> tensor_values, const ShardOptions& options) {
  check(tensor_values, options);
  std::vector<Block> blocks;
  for (std::uint32_t tensor = 0; tensor < tensor_values.size(); ++tensor) {
    for (const Range& piece : pieces_of(tensor, tensor_values[tensor], options.values_per_block)) {
      const bool shares = !blocks.empty() && blocks.back().count + piece.count <= options.values_per_block;
      if (!shares) blocks.emplace_back();
      blocks.back().ranges.push_back(piece);
      blocks.back().count += piece.count;
    }
  }
  std::vector<std::uint64_t> load(static_cast<std::size_t>(options.servers));
  for (Block& block : blocks) {
    block.server = static_cast<int>(std::ranges::min_element(load) - load.begin());
    load[static_cast<std::size_t>(block.server)] += block.count;
  }
  return blocks;
}

}  // namespace gyre::params
