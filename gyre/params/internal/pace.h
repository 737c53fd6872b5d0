#pragma once

#include "gyre/base/thread_annotations.h"
#include "gyre/group/abort_signal.h"

namespace gyre::params::internal {

/// How far a worker in sync may send ahead of its answers. Workers whose links are faster, or luckier, would otherwise
/// send far ahead, fill the server's link with blocks that have to wait for the others', and all answers would come at
/// the end. Thread-safe.
class Pace {
 public:
  /// How many blocks of a worker may be unanswered; it sends the next when one is answered. Eight workers on
  /// links of 100 Mbit/s, 4 MB through one server in 16 blocks: 2.8 s with 2, 3.0 with 4, 3.4 with 8, 3.7 without a
  /// limit. Through four: 0.91, 0.81, 1.0, 1.15.
  static constexpr int kMostUnanswered = 4;

  /// A block is expected from now on.
  void expect();
  /// Its answer has been sent.
  void answer();
  /// Returns when another block may be expected. Throws the reason of `failure` once that is triggered; the thread that
  /// triggers it then has to call wake().
  void wait(group::AbortSignal& failure);
  void wake();

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  int unanswered_ GYRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace gyre::params::internal
