#include "gyre/jobs/drivers/ssh/internal/host_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::jobs::drivers::ssh {

namespace {

constexpr std::chrono::seconds kFirstPause{1};
constexpr std::chrono::seconds kLongestPause{30};

std::int64_t seconds_of(SteadyClock::duration time) {
  return std::max<std::int64_t>(std::chrono::ceil<std::chrono::seconds>(time).count(), 0);
}

}  // namespace

void HostWatch::failed(const std::string& host, const std::string& words) {
  const auto now = SteadyClock::now();
  const MutexLock lock(mutex_);
  const auto [found, is_new] = away_.try_emplace(host, Away{.words = {}, .since = now, .next = now});
  Away& away = found->second;
  away.words = words;
  if (now < away.next) return;  // Of several logins at once one counts.
  away.pause = is_new ? kFirstPause : std::min(2 * away.pause, kLongestPause);
  away.next = now + away.pause;
}

void HostWatch::answered(const std::string& host) {
  const MutexLock lock(mutex_);
  away_.erase(host);
}

bool HostWatch::is_away(const std::string& host) const {
  const MutexLock lock(mutex_);
  return away_.contains(host);
}

bool HostWatch::rests(const std::string& host) const {
  const MutexLock lock(mutex_);
  const auto found = away_.find(host);
  return found != away_.end() && SteadyClock::now() < found->second.next;
}

void HostWatch::look(const std::set<std::string>& tried_by_others) {
  read_probes();
  std::vector<std::string> due;
  {
    const auto now = SteadyClock::now();
    const MutexLock lock(mutex_);
    for (const auto& [host, away] : away_) {
      if (now >= away.next && !probes_.contains(host) && !tried_by_others.contains(host)) due.push_back(host);
    }
  }
  for (const std::string& host : due) {
    const auto number = std::ranges::find(options_.hosts, host) - options_.hosts.begin();
    try {
      client_.pin(host);
      const std::filesystem::path words = options_.folder / fmt::format("probe-{}", number);
      probes_.emplace(host, client_.start(host, "true", "/dev/null", words));
    } catch (const Error& error) {
      failed(host, error.what());
    }
  }
}

void HostWatch::read_probes() {
  for (auto probe = probes_.begin(); probe != probes_.end();) {
    const auto& [host, session] = *probe;
    const auto status = session.process.exit_status();
    if (!status) {
      ++probe;
      continue;
    }
    status->success() ? answered(host) : failed(host, last_words(session.error));
    std::error_code ignored;
    for (const std::filesystem::path& file : {session.out, session.error}) std::filesystem::remove(file, ignored);
    probe = probes_.erase(probe);
  }
}

std::vector<std::string> HostWatch::sentences() const {
  const auto now = SteadyClock::now();
  std::vector<std::string> all;
  const MutexLock lock(mutex_);
  for (const auto& [host, away] : away_) {
    all.push_back(
        fmt::format("{} has not been reached for {} s ({}); jobs get other hosts where enough are free, and "
                    "it is tried again in {} s",
                    host, seconds_of(now - away.since), away.words, seconds_of(away.next - now)));
  }
  return all;
}

}  // namespace gyre::jobs::drivers::ssh
