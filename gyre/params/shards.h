#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gyre::params {

/// A run of values of one tensor.
struct Range {
  std::uint32_t tensor = 0;  ///< Its number among the tensors.
  std::uint64_t first = 0;   ///< Of its values.
  std::uint64_t count = 0;

  bool operator==(const Range&) const = default;
};

/// The unit that travels and is updated as a whole: ranges of values on one server, a large tensor's piece or several
/// small tensors. It is exchanged, summed and updated while other blocks are still on their way.
struct Block {
  int server = 0;
  std::vector<Range> ranges;
  std::uint64_t count = 0;  ///< Values in all ranges.

  bool operator==(const Block&) const = default;
};

struct ShardOptions {
  int servers = 1;
  std::uint64_t values_per_block = std::uint64_t{1} << 20;  ///< At most; 4 MB of float32.
};

inline constexpr int kMostServers = 1 << 16;
inline constexpr std::uint64_t kMostBlocks = std::uint64_t{1} << 16;

/// Divides tensors with these numbers of values into blocks, and the blocks among servers. Every value is in exactly
/// one block. Tensors larger than a block are split into pieces of nearly equal size; neighbouring smaller ones share a
/// block, in the order of their tensors; each goes to the server with the fewest values so far, of several to the
/// first. Pure: the same on every worker and server. Tensors without values have no block. Error(kInvalidArgument)
/// where there are no servers or more than kMostServers, or about kMostBlocks or more blocks.
std::vector<Block> divide_into_blocks(std::span<const std::uint64_t> tensor_values, const ShardOptions& options);

}  // namespace gyre::params
