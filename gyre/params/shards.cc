#include "gyre/params/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

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
  if (blocks == 0) throw Error(ErrorCode::kInvalidArgument, "there are no parameters to share among servers");
  if (blocks > kMostBlocks) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("parameters in {} blocks of {} values: at most {} blocks are possible", blocks,
                            options.values_per_block, kMostBlocks));
  }
  if (options.placement != Placement::kExplicit) return;
  if (options.server_of_tensor.size() != tensor_values.size()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("an explicit placement names a server for {} tensors of {}",
                                                         options.server_of_tensor.size(), tensor_values.size()));
  }
  for (const int server : options.server_of_tensor) {
    if (server >= 0 && server < options.servers) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("an explicit placement names server {}: they are 0 to {}", server, options.servers - 1));
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
  const bool is_explicit = options.placement == Placement::kExplicit;
  std::vector<Block> blocks;
  for (std::uint32_t tensor = 0; tensor < tensor_values.size(); ++tensor) {
    const int wanted = is_explicit ? options.server_of_tensor[tensor] : 0;
    for (const Range& piece : pieces_of(tensor, tensor_values[tensor], options.values_per_block)) {
      const bool shares = !blocks.empty() && blocks.back().count + piece.count <= options.values_per_block &&
                          (!is_explicit || blocks.back().server == wanted);
      if (!shares) blocks.push_back({.server = wanted, .ranges = {}});
      blocks.back().ranges.push_back(piece);
      blocks.back().count += piece.count;
    }
  }
  if (is_explicit) return blocks;
  std::vector<std::uint64_t> load(static_cast<std::size_t>(options.servers));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::size_t server = options.placement == Placement::kRoundRobin
                                   ? i % load.size()
                                   : static_cast<std::size_t>(std::ranges::min_element(load) - load.begin());
    blocks[i].server = static_cast<int>(server);
    load[server] += blocks[i].count;
  }
  return blocks;
}

}  // namespace gyre::params
