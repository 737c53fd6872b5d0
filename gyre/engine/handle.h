#pragma once

#include <memory>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/engine/request.h"

namespace gyre::engine {

/// The outcome of one submitted operation, now or later. Copies refer to the same operation. Thread-safe.
class Handle {
 public:
  Handle();

  bool done() const;
  /// Sleeps until done; throws what made the operation fail, every time it is called.
  void wait() const;
  /// The same for at most `duration`; false when it is not done by then.
  bool wait_for(std::chrono::milliseconds duration) const;
  /// What the engine allocated; call once, after wait().
  Result take_result() const;

  /// For the engine: exactly one of the two, once.
  void complete(Result result = {}) const;
  void fail(const Error& failure) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace gyre::engine
