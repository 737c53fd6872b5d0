#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/drivers/ssh/internal/client.h"

namespace gyre::jobs::drivers::ssh {

/// Which hosts cannot be logged in to. Each of them is tried again, ever less often. sentences() is thread-safe; the
/// rest is not.
class HostWatch {
 public:
  /// `options` and `client` must outlive this object.
  HostWatch(const SshOptions& options, Client& client) : options_(options), client_(client) {}

  /// A login has just failed; `words`: what ssh has said.
  void failed(const std::string& host, const std::string& words) GYRE_EXCLUDES(mutex_);
  void answered(const std::string& host) GYRE_EXCLUDES(mutex_);
  /// The last login has failed.
  bool is_away(const std::string& host) const GYRE_EXCLUDES(mutex_);
  /// Whether it is too early for another login.
  bool rests(const std::string& host) const GYRE_EXCLUDES(mutex_);
  /// Tries the hosts whose time has come, but those that somebody else tries. Waits for none.
  void look(const std::set<std::string>& tried_by_others) GYRE_EXCLUDES(mutex_);
  /// One for each host that is away, for people.
  std::vector<std::string> sentences() const GYRE_EXCLUDES(mutex_);

 private:
  struct Away {
    std::string words;
    SteadyClock::time_point since;
    SteadyClock::time_point next;
    std::chrono::seconds pause{};
  };

  void read_probes() GYRE_EXCLUDES(mutex_);

  const SshOptions& options_;
  Client& client_;
  std::map<std::string, Session> probes_;
  mutable Mutex mutex_;
  std::map<std::string, Away> away_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::drivers::ssh
