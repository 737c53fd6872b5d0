#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/engine/request.h"

namespace gyre::engine {

/// The outcome of one submitted operation, now or later. Copies refer to the same operation. Thread-safe.
class Handle {
  struct State;

 public:
  Handle();

  bool done() const;
  /// Sleeps until done; throws what made the operation fail, every time it is called.
  void wait() const;
  /// wait() for at most `duration`; false when it is not done by then.
  bool wait_for(std::chrono::milliseconds duration) const;
  /// While one of these lives, its thread does nothing else before this operation is done: what wait() does by itself,
  /// for callers that make the same wait out of many short ones.
  class Waiting {
   public:
    explicit Waiting(const Handle& handle);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    const std::shared_ptr<State> state_;
  };
  /// The threads that wait without a limit.
  std::vector<std::thread::id> waiting_threads() const;
  /// What the engine allocated; call once, after wait().
  Result take_result() const;

  /// For the engine: exactly one of the two, once.
  void complete(Result result = {}) const;
  void fail(const Error& failure) const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace gyre::engine
