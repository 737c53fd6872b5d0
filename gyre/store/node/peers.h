#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/net/job_key.h"
#include "gyre/net/stream.h"
#include "gyre/store/node/members.h"
#include "gyre/store/node/reading.h"
#include "gyre/store/node/wire.h"

namespace gyre::store::node {

/// The node has another key than this one.
class OtherKey : public Error {
 public:
  OtherKey(const Member& node, bool is_news);
  /// It was not known yet: the reason is worth a line.
  bool is_news() const { return is_news_; }

 private:
  bool is_news_;
};

/// This node's connections to the others. Thread-safe: each request has a connection to itself.
class Peers {
 public:
  /// `membership` outlives it.
  Peers(std::uint32_t self, const net::JobKey& key, std::uint64_t fingerprint, Membership& membership)
      : self_(self), key_(key), fingerprint_(fingerprint), membership_(membership) {}

  /// Reads from a node what is left of `reading`. False where the node does not have it, and was not to fetch it.
  /// `chunk` names the chunk, and whether only what is present is wanted. Error: kPeerLost, kTimeout (silent for five
  /// seconds), OtherKey, …, which make the node suspect for a while; what made the node itself fail; ReaderGone.
  bool read(std::uint32_t node, const ReadRequest& chunk, Reading& reading);

  /// Hands the members of now to a node, and adopts its own where they are later. Error as read().
  void announce(const Member& node);

  /// A node has connected to this one: what is held against it was before it started.
  void lives(std::uint32_t node) GYRE_EXCLUDES(mutex_);
  /// Whether a node has failed lately.
  bool is_suspect(std::uint32_t node) const GYRE_EXCLUDES(mutex_);

 private:
  struct Suspicion {
    SteadyClock::time_point until{};
    std::chrono::milliseconds last{0};
    bool has_other_key = false;
  };
  using Streams = std::vector<std::unique_ptr<net::Stream>>;

  bool ask(net::Stream& stream, ReadRequest request, Reading& reading);
  /// `stamp`: of the members that the other node knows.
  void compare_members(net::Stream& stream, std::uint64_t stamp);
  std::unique_ptr<net::Stream> connect(const Member& node) GYRE_EXCLUDES(mutex_);
  std::unique_ptr<net::Stream> take_idle(std::uint32_t node) GYRE_EXCLUDES(mutex_);
  void give_back(std::uint32_t node, std::unique_ptr<net::Stream> stream) GYRE_EXCLUDES(mutex_);
  void suspect(std::uint32_t node) GYRE_EXCLUDES(mutex_);

  const std::uint32_t self_;
  const net::JobKey key_;
  const std::uint64_t fingerprint_;
  Membership& membership_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, Streams> idle_ GYRE_GUARDED_BY(mutex_);
  std::map<std::uint32_t, Suspicion> suspicions_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::store::node
