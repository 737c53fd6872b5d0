#include "gyre/store/node/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/net/endpoint.h"

namespace gyre::store::node {

namespace {

constexpr std::int64_t kMostId = 65'535;

std::pair<std::uint64_t, std::uint32_t> weight(std::uint32_t id, const ChunkKey& key) {
  return {xxh3_64(key.bytes, id), id};
}

}  // namespace

std::uint64_t Members::stamp() const {
  const std::uint32_t checksum = epoch > 1 ? crc32c(as_bytes(to_string(*this))) : 0;
  return std::uint64_t{epoch} << 32 | checksum;
}

bool Members::has(std::uint32_t id) const { return std::ranges::binary_search(nodes, id, {}, &Member::id); }

const std::string& Members::endpoint_of(std::uint32_t id) const {
  const auto found = std::ranges::lower_bound(nodes, id, {}, &Member::id);
  if (found == nodes.end() || found->id != id) {
    throw Error(ErrorCode::kPeerLost, fmt::format("node {} is not part of the store any more", id));
  }
  return found->endpoint;
}

std::vector<std::uint32_t> Members::order(const ChunkKey& key) const {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> weights;
  for (const Member& node : nodes) weights.push_back(weight(node.id, key));
  std::ranges::sort(weights, std::ranges::greater());
  std::vector<std::uint32_t> ids;
  for (const auto& [value, id] : weights) ids.push_back(id);
  return ids;
}

bool Members::owned_by(std::uint32_t id, const ChunkKey& key) const {
  const auto own = weight(id, key);
  return has(id) && std::ranges::all_of(nodes, [&](const Member& node) { return weight(node.id, key) <= own; });
}

Bytes Members::encode() const {
  ByteWriter writer;
  writer.u32(epoch);
  writer.text(to_string(*this));
  return writer.take();
}

Members Members::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "the members of a store");
  const std::uint32_t epoch = reader.u32();
  return parse_members(reader.text(reader.remaining()), epoch);
}

Members parse_members(std::string_view text, std::uint32_t epoch) {
  Members members{.epoch = epoch};
  for (const std::string& word : split(text, ',')) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' does not name a node of the store; write it like 0=tcp:10.0.0.1:7000", word));
    }
    const auto id = static_cast<std::uint32_t>(parse_integer(word.substr(0, equals), "a node's number", 0, kMostId));
    const net::Endpoint endpoint = net::parse_endpoint(word.substr(equals + 1));
    members.nodes.push_back({.id = id, .endpoint = net::to_string(endpoint)});
  }
  std::ranges::sort(members.nodes, {}, &Member::id);
  const auto twice = std::ranges::adjacent_find(members.nodes, {}, &Member::id);
  if (twice != members.nodes.end()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the store has two nodes with the number {}", twice->id));
  }
  return members;
}

std::string to_string(const Members& members) {
  std::string text;
  for (const Member& node : members.nodes) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", node.id, node.endpoint);
  }
  return text;
}

std::shared_ptr<const Members> Membership::now() const {
  const MutexLock lock(mutex_);
  return members_;
}

std::uint64_t Membership::stamp() const {
  const MutexLock lock(mutex_);
  return stamp_;
}

bool Membership::adopt(Members members) {
  const std::uint64_t stamp = members.stamp();
  return adopt_if(std::move(members), [stamp](const Members& now) { return stamp > now.stamp(); });
}

bool Membership::adopt_next(Members members) {
  const std::uint64_t epoch = members.epoch;
  return adopt_if(std::move(members), [epoch](const Members& now) { return epoch == std::uint64_t{now.epoch} + 1; });
}

bool Membership::adopt_if(Members members, const std::function<bool(const Members& now)>& replaces) {
  {
    const MutexLock lock(mutex_);
    if (!replaces(*members_)) return false;
    members_ = std::make_shared<const Members>(std::move(members));
    stamp_ = members_->stamp();
  }
  changed_();
  return true;
}

}  // namespace gyre::store::node
