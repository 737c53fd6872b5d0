#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"

namespace gyre {

/// The outcome of one operation, now or later: a `Value`, or an Error. Copies refer to the same operation. Thread-safe.
template <typename Value>
class Completion {
  struct State {
    Mutex mutex;
    ConditionVariable changed;
    bool done GYRE_GUARDED_BY(mutex) = false;
    std::optional<Error> failure GYRE_GUARDED_BY(mutex);
    Value value GYRE_GUARDED_BY(mutex){};
    std::vector<ThreadIdentity> waiting GYRE_GUARDED_BY(mutex);
  };

 public:
  Completion() : state_(std::make_shared<State>()) {}

  bool done() const {
    const MutexLock lock(state_->mutex);
    return state_->done;
  }

  /// Sleeps until done; throws what made the operation fail, every time it is called.
  void wait() const {
    std::optional<Waiting> waiting;
    if (!done()) waiting.emplace(*this);
    const MutexLock lock(state_->mutex);
    while (!state_->done) state_->changed.wait(state_->mutex);
    if (state_->failure) throw Error(*state_->failure);
  }

  /// wait() for at most `duration`; false when it is not done by then.
  bool wait_for(std::chrono::milliseconds duration) const {
    const auto until = SteadyClock::now() + duration;
    const MutexLock lock(state_->mutex);
    while (!state_->done) {
      if (!state_->changed.wait_until(state_->mutex, until)) break;
    }
    if (state_->failure) throw Error(*state_->failure);
    return state_->done;
  }

  /// The value; call once, after wait().
  Value take_result() const {
    const MutexLock lock(state_->mutex);
    GYRE_CHECK(state_->done);
    return std::move(state_->value);
  }

  /// While one of these lives, its thread does nothing else before the operation is done: what wait() does by itself,
  /// for callers that make the same wait out of many short ones.
  class Waiting {
   public:
    explicit Waiting(const Completion& completion) : state_(completion.state_) {
      const MutexLock lock(state_->mutex);
      state_->waiting.push_back(ThreadIdentity::current());
    }
    ~Waiting() {
      const MutexLock lock(state_->mutex);
      state_->waiting.erase(std::ranges::find(state_->waiting, std::this_thread::get_id(), &ThreadIdentity::id));
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    const std::shared_ptr<State> state_;
  };
  /// The threads that wait without a limit.
  std::vector<ThreadIdentity> waiting_threads() const {
    const MutexLock lock(state_->mutex);
    return state_->waiting;
  }

  /// For the code that runs the operation: exactly one of the two, once.
  void complete(Value value = {}) const {
    {
      const MutexLock lock(state_->mutex);
      GYRE_CHECK(!state_->done);
      state_->value = std::move(value);
      state_->done = true;
    }
    state_->changed.notify_all();
  }
  void fail(const Error& failure) const {
    {
      const MutexLock lock(state_->mutex);
      GYRE_CHECK(!state_->done);
      state_->failure = failure;
      state_->done = true;
    }
    state_->changed.notify_all();
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace gyre
