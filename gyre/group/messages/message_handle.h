#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/completion.h"

namespace gyre::group {

/// The outcome of a message that has arrived.
struct Arrival {
  int source = -1;                     ///< The rank that sent it; -1 at the sender.
  SteadyClock::time_point finished{};  ///< After PointToPoint::note_times().
};

/// The outcome of one send or receive, now or later: a Completion whose waiters move the messages themselves, so that a
/// small one needs no other thread. Copies refer to the same message. Thread-safe.
class MessageHandle {
 public:
  using Waiting = Completion<Arrival>::Waiting;

  /// What a waiting thread can do for its message.
  class Helper {
   public:
    virtual ~Helper() = default;
    /// Moves messages until `outcome` is done or the time has come; may return earlier where there is nothing to do.
    virtual void help(const Completion<Arrival>& outcome, std::optional<SteadyClock::time_point> until) = 0;
  };

  MessageHandle() = default;
  /// `note_time`: whether the Arrival says when it was.
  explicit MessageHandle(std::shared_ptr<Helper> helper, bool note_time = false)
      : helper_(std::move(helper)), note_time_(note_time) {}

  /// See Completion.
  bool done() const { return outcome_.done(); }
  void wait() const {
    if (helper_ && !done()) {
      const Waiting waiting(outcome_);
      helper_->help(outcome_, std::nullopt);
    }
    outcome_.wait();
  }
  bool wait_for(std::chrono::milliseconds duration) const {
    if (!helper_) return outcome_.wait_for(duration);
    const auto until = SteadyClock::now() + duration;
    if (!done()) helper_->help(outcome_, until);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now());
    return outcome_.wait_for(std::max(left, std::chrono::milliseconds(0)));
  }
  Arrival take_result() const { return outcome_.take_result(); }
  std::vector<ThreadIdentity> waiting_threads() const { return outcome_.waiting_threads(); }
  void complete(Arrival value = {}) const {
    if (note_time_) value.finished = SteadyClock::now();
    outcome_.complete(value);
  }
  void fail(const Error& failure) const { outcome_.fail(failure); }

  /// For Waiting.
  operator const Completion<Arrival>&() const { return outcome_; }  // NOLINT(google-explicit-constructor)

 private:
  Completion<Arrival> outcome_;
  std::shared_ptr<Helper> helper_;
  bool note_time_ = false;
};

}  // namespace gyre::group
