#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/metrics/news.h"
#include "gyre/metrics/overview.h"

namespace gyre::page {

using metrics::News;

/// Ordered as people want to see them: what needs attention first.
enum class Phase : std::uint8_t {
  kFailed,    ///< Why the job failed, or will fail.
  kLost,      ///< Failed, and the others went on without it.
  kLate,      ///< Behind the others, or what they wait for.
  kStarting,  ///< Has written nothing yet, and no rank has logged a step.
  kRunning,
  kStopped,  ///< Was asked to end.
  kEnded,    ///< With exit code 0.
};
std::string_view phase_name(Phase phase);

/// A job as its launcher describes it. Pure but for what it is fed; not thread-safe.
class JobState {
 public:
  /// The newest; older ones are dropped.
  static constexpr std::size_t kMostEvents = 1'000;
  /// Of the values that json() has.
  static constexpr std::size_t kMostLatest = 8;

  /// `log_bytes`: how much that rank has written so far.
  void hear(const News& news, std::uint64_t log_bytes);

  bool is_over() const { return exit_code_.has_value(); }
  std::vector<int> ranks() const;
  std::map<int, std::string> roles() const;  ///< By rank.
  /// {"name", "state", "exit_code", "first_failed_rank", "report", "restarts", "preparing", "ranks": […], "latest":
  /// [{"name", "step", "value"}, …], "names", "events": […]}: what the program has logged last under the first of so
  /// many names; the ranks in the order of their phases, and within one, the slowest first.
  std::string json(const std::string& name, const metrics::Overview& metrics,
                   const std::map<int, std::uint64_t>& log_bytes) const;

 private:
  struct Rank {
    int process = 0;
    std::string role;
    std::string host;
    bool is_running = false;
    bool asked = false;
    bool is_lost = false;
    int code = 0;
    int signal = 0;
    std::int64_t started_us = 0;
    std::int64_t ended_us = 0;
    std::uint64_t log_begin = 0;  ///< Where this start's output begins.
    std::uint64_t log_end = 0;    ///< What it had written when it ended.
  };
  struct Event {
    std::uint64_t number = 0;
    std::int64_t time_us = 0;
    std::optional<int> rank;
    std::string kind;
    std::string text;
  };
  struct Shown;

  void add_event(const News& news, std::string kind, std::string text);
  void rank_started(const News& news, std::uint64_t log_bytes);
  void rank_ended(const News& news, std::uint64_t log_bytes);
  std::vector<Shown> shown(const metrics::Overview& metrics, const std::map<int, std::uint64_t>& log_bytes) const;
  Phase phase_of_ended(int number, const Rank& rank) const;
  std::string_view state() const;

  std::map<int, Rank> ranks_;
  std::deque<Event> events_;
  std::uint64_t next_event_ = 0;
  std::optional<int> first_failed_;
  std::string report_;
  std::string preparing_;  ///< Empty: ranks have started, or nothing comes before them.
  std::optional<int> stopped_by_;
  std::optional<int> exit_code_;
  int restarts_ = 0;
};

}  // namespace gyre::page
