#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <thread>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/group/messages/point_to_point.h"
#include "gyre/params/quorum.h"
#include "gyre/params/setup.h"

namespace gyre::params::internal {

/// A verdict as servers tell it to each other, and server 0 to the workers that it concerns.
std::size_t verdict_bytes(int workers);
Bytes encode(const Quorum::Verdict& verdict, int workers);
/// Error(kProtocol) for what is not a verdict about this number of workers.
Quorum::Verdict decode_verdict(std::span<const std::byte> bytes, int workers);

/// Carries a Quorum's verdicts to all servers: server 0 holds the quorum, hears from the others what has arrived there,
/// and tells them its verdicts; every server carries out the same ones in the same order. Thread-safe.
class Verdicts {
 public:
  /// On a thread of its own, for one verdict after the other.
  using CarryOut = std::function<void(const Quorum::Verdict&)>;
  /// An error on a thread of this object.
  using Fail = std::function<void(const Error&)>;

  /// `messages` must outlive it.
  Verdicts(group::PointToPoint& messages, const Layout& layout, int server, int backup, CarryOut carry_out, Fail fail);
  /// Waits for the threads: until all workers are gone, or the group has failed.
  ~Verdicts();
  Verdicts(const Verdicts&) = delete;
  Verdicts& operator=(const Verdicts&) = delete;

  /// As those of Quorum, of this server. announce(), pause() and resume() are server 0's, where leave() and lose()
  /// count, too.
  void ready(int worker, bool asks);
  void announce(int worker);
  void pause(int worker);
  void resume(int worker);
  void leave(int worker);
  void lose(int worker);
  /// After a failure: nothing more will come.
  void stop();

 private:
  bool decides() const { return server_ == 0; }
  void queue(Quorum::Verdicts verdicts) GYRE_REQUIRES(mutex_);
  std::optional<Quorum::Verdict> next() GYRE_EXCLUDES(mutex_);
  void hear(int server);
  void lead();
  void follow();
  void start(std::function<void()> work);

  group::PointToPoint& messages_;
  const Layout layout_;
  const int server_;
  const CarryOut carry_out_;
  const Fail fail_;
  Mutex mutex_;
  ConditionVariable changed_;
  Quorum quorum_ GYRE_GUARDED_BY(mutex_);
  std::queue<Quorum::Verdict> queue_ GYRE_GUARDED_BY(mutex_);
  bool stopped_ GYRE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace gyre::params::internal
