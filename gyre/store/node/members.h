#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/node/catalog.h"

namespace gyre::store::node {

struct Member {
  std::uint32_t id = 0;
  std::string endpoint{};  ///< "tcp:HOST:PORT".

  friend bool operator==(const Member&, const Member&) = default;
};

/// The nodes of a store. A later list replaces an earlier one.
struct Members {
  std::uint32_t epoch = 1;
  std::vector<Member> nodes{};  ///< By id.

  /// The later one of two lists has the larger stamp: that of the later epoch. Of two that were made of the same one at
  /// the same time, on two nodes, all nodes take the same: the one with the larger checksum. Lists of epoch 1 are those
  /// of command lines, which do not replace each other.
  std::uint64_t stamp() const;

  bool has(std::uint32_t id) const;
  const std::string& endpoint_of(std::uint32_t id) const;
  /// All ids, the chunk's owner first; who comes next takes its place when it is gone. A pure function of the ids, so
  /// that nodes agree without asking, and a node that comes or goes moves only the chunks that it owns.
  /// Source: highest random weight; Thaler, Ravishankar: "Using name-based mappings to increase hit rates", 1998.
  std::vector<std::uint32_t> order(const ChunkKey& key) const;
  bool owned_by(std::uint32_t id, const ChunkKey& key) const;

  Bytes encode() const;
  /// Error(kCorruptData).
  static Members decode(std::span<const std::byte> bytes);

  friend bool operator==(const Members&, const Members&) = default;
};

/// "0=tcp:10.0.0.1:7000,1=tcp:10.0.0.2:7000". Error(kInvalidArgument).
Members parse_members(std::string_view text, std::uint32_t epoch);
std::string to_string(const Members& members);

/// The members as this node knows them. Thread-safe.
class Membership {
 public:
  /// `changed` is called after each change, by the thread that makes it.
  Membership(Members members, std::function<void()> changed)
      : changed_(std::move(changed)),
        members_(std::make_shared<const Members>(std::move(members))),
        stamp_(members_->stamp()) {}

  std::shared_ptr<const Members> now() const GYRE_EXCLUDES(mutex_);
  /// Of the members of now: each reply has it.
  std::uint64_t stamp() const GYRE_EXCLUDES(mutex_);
  /// True where `members` are later than those of now, and so replace them.
  bool adopt(Members members) GYRE_EXCLUDES(mutex_);
  /// True where they are of the next epoch, and so were made of those of now.
  bool adopt_next(Members members) GYRE_EXCLUDES(mutex_);

 private:
  bool adopt_if(Members members, const std::function<bool(const Members& now)>& replaces) GYRE_EXCLUDES(mutex_);

  const std::function<void()> changed_;
  mutable Mutex mutex_;
  std::shared_ptr<const Members> members_ GYRE_GUARDED_BY(mutex_);
  std::uint64_t stamp_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::store::node
