#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gyre/store/staging/manifest.h"

namespace gyre::store {

/// How a manifest is divided over nodes.
enum class ShardRule {
  kSize,    ///< Alike in bytes: the largest object first, each to the node that has the fewest bytes.
  kSuffix,  ///< By the last number in an object's name, modulo the number of nodes; objects without one by size.
  kRange,   ///< In the order of their names, as many to each node.
};

/// As --shard-by has it.
std::string_view name_of(ShardRule rule);

/// The node of each entry, 0 to `nodes` - 1: every entry has one, for every number of nodes. A pure function.
std::vector<int> shard(const Manifest& manifest, int nodes, ShardRule rule);

/// The entries of one node.
Manifest part_of_node(const Manifest& manifest, int node, int nodes, ShardRule rule);

}  // namespace gyre::store
