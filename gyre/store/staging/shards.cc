#include "gyre/store/staging/shards.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

#include "gyre/base/check.h"

namespace gyre::store {

namespace {

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

/// The last number in the last part of a name, modulo `nodes`: 17 of "train/univ_017.tfrecord.gz".
std::optional<int> suffix_node(const std::string& name, int nodes) {
  const std::size_t begin = name.rfind('/') + 1;
  std::size_t end = name.size();
  while (end > begin && !is_digit(name[end - 1])) --end;
  std::size_t first = end;
  while (first > begin && is_digit(name[first - 1])) --first;
  if (first == end) return std::nullopt;
  std::int64_t remainder = 0;
  for (std::size_t i = first; i < end; ++i) remainder = (remainder * 10 + (name[i] - '0')) % nodes;
  return static_cast<int>(remainder);
}

/// Gives every entry without a node (-1) one.
void pack(const Manifest& manifest, int nodes, std::vector<int>& owners) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(owners.size());
  for (const ManifestEntry& entry : manifest.entries) sizes.push_back(entry.object.size_bytes);
  std::vector<std::uint64_t> loads(static_cast<std::size_t>(nodes));
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] < 0) {
      open.push_back(i);
    } else {
      loads[static_cast<std::size_t>(owners[i])] += sizes[i];
    }
  }
  std::ranges::sort(open, {},
                    [&](std::size_t i) { return std::pair(std::numeric_limits<std::uint64_t>::max() - sizes[i], i); });
  using Load = std::pair<std::uint64_t, int>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> lightest;
  for (int node = 0; node < nodes; ++node) lightest.emplace(loads[static_cast<std::size_t>(node)], node);
  for (const std::size_t i : open) {
    auto [load, node] = lightest.top();
    lightest.pop();
    owners[i] = node;
    // An empty object counts too, or one node would get all of them.
    lightest.emplace(load + std::max<std::uint64_t>(sizes[i], 1), node);
  }
}

}  // namespace

std::string_view name_of(ShardRule rule) {
  switch (rule) {
    case ShardRule::kSuffix: return "suffix";
    case ShardRule::kRange: return "range";
    default: return "size";
  }
}

std::vector<int> shard(const Manifest& manifest, int nodes, ShardRule rule) {
  GYRE_CHECK(nodes >= 1);
  const std::size_t count = manifest.entries.size();
  std::vector<int> owners(count, -1);
  for (std::size_t i = 0; i < count; ++i) {
    if (rule == ShardRule::kSuffix) owners[i] = suffix_node(manifest.entries[i].object.name, nodes).value_or(-1);
    if (rule == ShardRule::kRange) owners[i] = static_cast<int>(i * static_cast<std::size_t>(nodes) / count);
  }
  pack(manifest, nodes, owners);
  return owners;
}

Manifest part_of_node(const Manifest& manifest, int node, int nodes, ShardRule rule) {
  const std::vector<int> owners = shard(manifest, nodes, rule);
  Manifest part{
      .sources = manifest.sources,
      .part = PartOf{
          .node = node, .nodes = nodes, .rule = std::string(name_of(rule)), .whole_manifest = manifest.digest()}};
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] == node) part.entries.push_back(manifest.entries[i]);
  }
  return part;
}

}  // namespace gyre::store
