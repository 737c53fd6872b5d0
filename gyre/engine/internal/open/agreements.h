#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"

namespace gyre::engine::internal {

/// How many operations have been agreed on that something else carries out. Thread-safe.
class Agreements {
 public:
  /// Their handles are done.
  void add(std::uint64_t operations);
  /// None will follow. `failure`: why; that of a rank which has left in good order is none.
  void end(const Error& failure);
  /// See Engine::wait_for_agreements.
  std::optional<std::uint64_t> wait_for_more_than(std::uint64_t count, std::chrono::milliseconds patience);

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  std::uint64_t count_ GYRE_GUARDED_BY(mutex_) = 0;
  std::optional<Error> end_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::engine::internal
