#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "gyre/base/clock.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/page/job_view.h"

namespace gyre::page {

/// The jobs of a server that somebody looks at, so that their files are not read anew for each request: kMost at most,
/// and none that nobody has asked for since kLongestUnasked. Whoever has one keeps it while they need it. Thread-safe.
class OpenJobs {
 public:
  static constexpr std::size_t kMost = 16;
  static constexpr std::chrono::seconds kLongestUnasked{60};

  /// `make` is called for one that is not open.
  std::shared_ptr<JobView> find(const std::string& id, const std::function<std::shared_ptr<JobView>()>& make)
      GYRE_EXCLUDES(mutex_);

 private:
  struct Open {
    std::string id;
    std::shared_ptr<JobView> job;
    SteadyClock::time_point asked;
  };

  Mutex mutex_;
  std::list<Open> open_ GYRE_GUARDED_BY(mutex_);  ///< The one that was asked for last comes first.
};

}  // namespace gyre::page
