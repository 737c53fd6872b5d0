#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/group/group.h"
#include "gyre/params/internal/requests.h"
#include "gyre/params/server.h"

namespace gyre::params::internal {

/// "worker 2 (host node7, pid 4711)", by worker.
std::vector<std::string> names_of_workers(const group::Group& group, const Layout& layout);

/// What the workers are doing, as server 0 sees it, and how long they have been waiting: says so where that takes long.
/// A worker that waits is answered when others have done something; one that does not wait computes, or is stuck
/// elsewhere. Thread-safe.
class StallWatch {
 public:
  using Fail = std::function<void(const Error&)>;

  /// `names`: of the workers. `fail`: called on a thread of this object after ServerOptions::stall_failure.
  StallWatch(std::vector<std::string> names, const ServerOptions& options, Fail fail);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  /// The worker's request, whose answers are this number of messages if they are values. `steps`: it has taken so far.
  void note(int worker, const Request& request, std::size_t values, std::uint64_t steps);
  /// The worker waits for this number of answers; `where`: "at settle()". With 0 it does not wait.
  void asks(int worker, std::string_view where, std::size_t answers);
  void answered(int worker);
  void gone(int worker);

 private:
  struct Worker {
    std::string where;
    std::size_t answers = 0;  ///< Still to come.
    SteadyClock::time_point since{};
    bool gone = false;
    bool reported = false;
  };

  void watch();
  SteadyClock::time_point next_look() const GYRE_REQUIRES(mutex_);
  std::optional<Error> look() GYRE_REQUIRES(mutex_);
  std::string describe(SteadyClock::time_point now) const GYRE_REQUIRES(mutex_);

  const std::vector<std::string> names_;
  const ServerOptions options_;
  const Fail fail_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<Worker> workers_ GYRE_GUARDED_BY(mutex_);
  bool failed_ GYRE_GUARDED_BY(mutex_) = false;
  bool stops_ GYRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // The last to be made.
};

}  // namespace gyre::params::internal
