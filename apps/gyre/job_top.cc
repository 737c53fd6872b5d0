#include "apps/gyre/job_top.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "apps/gyre/job_view.h"
#include "apps/gyre/rank_screen.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/client/log_lines.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/jobs/resources/json.h"

namespace gyre::app {

namespace {

using jobs::client::below;
using jobs::client::path_of;
using jobs::client::Session;
using jobs::resources::ExecutionState;
using jobs::resources::JobName;

constexpr std::chrono::seconds kBetweenLooks{2};
/// Of the end of a log, in which its last line is looked for.
constexpr std::uint64_t kTailBytes = 8 << 10;
/// A window has hardly more lines.
constexpr std::size_t kMostLinesOfLogs = 64;

/// What the server says of a job's ranks, and the last lines of their logs. Reads of a log what is new.
class JobRanks {
 public:
  JobRanks(Session& session, JobName job) : session_(session), job_(std::move(job)) {}

  RankView look() {
    const Json now = session_.get(below(path_of(job_), "run", "now"));
    RankView view{.job = now.at("job"), .is_over = now.at("over").get<bool>()};
    const Json& ranks = view.job.at("ranks");
    if (ranks.empty()) {
      explain(view);
      return view;
    }
    const Json& code = view.job.at("exit_code");
    view.title =
        fmt::format("{}: {} rank{}, {}{}", shown_place(job_), ranks.size(), ranks.size() == 1 ? "" : "s",
                    view.job.at("state").get<std::string>(),
                    code.is_number() && code != 0 && code != -1 ? fmt::format(" with exit code {}", code.get<int>())
                                                                : std::string());
    if (const int restarts = view.job.value("restarts", 0); restarts > 0) {
      view.title += fmt::format(", restarted {}", restarts == 1 ? "once" : fmt::format("{} times", restarts));
    }
    add_last_lines(view, now);
    return view;
  }

 private:
  struct Tail {
    std::uint64_t bytes = 0;  ///< Of the log.
    std::string text{};
  };

  void add_last_lines(RankView& view, const Json& now) {
    const Json names = now.value("log_names", Json::object());
    std::map<std::string, int> count;
    for (const auto& [rank, name] : names.items()) ++count[name.get<std::string>()];
    std::set<std::string> looked_at;
    for (const Json& rank : view.job.at("ranks")) {
      const int number = rank.at("rank").get<int>();
      const std::string key = std::to_string(number);
      if (!now.at("logs").contains(key)) continue;
      const std::string name = names.value(key, "rank " + key);
      if (!looked_at.contains(name) && looked_at.size() == kMostLinesOfLogs) continue;
      looked_at.insert(name);
      const Tail& tail = tail_of(name, number, now.at("logs").at(key).get<std::uint64_t>());
      // That of all is marked: `gyre run` has written it.
      const auto its = count[name] > 1 || name == "stdout.txt" ? std::optional(number) : std::nullopt;
      const std::string_view line = jobs::client::last_line(tail.text, its);
      if (!line.empty()) view.last_lines[number] = line;
    }
  }

  const Tail& tail_of(const std::string& name, int rank, std::uint64_t bytes) {
    Tail& tail = tails_[name];
    if (tail.bytes == bytes) return tail;
    try {
      const std::uint64_t from = bytes - std::min(bytes, kTailBytes);
      tail.text =
          session_.read(below(path_of(job_), "run", "ranks", std::to_string(rank), "log"), from, kTailBytes).bytes;
      tail.bytes = bytes;
    } catch (const Error& error) {
      if (!jobs::client::is_not_found(error)) throw;  // It is a new attempt, whose logs are other ones.
    }
    return tail;
  }

  /// Why there are no ranks.
  void explain(RankView& view) {
    const jobs::resources::Job job = jobs::resources::job_from_json(session_.get(path_of(job_)));
    const std::string name = shown_place(job_);
    const auto glance = jobs::client::glance_of(job, name, wall_clock_us());
    view.title = fmt::format("{}: {}", name, jobs::resources::name(glance.state));
    if (!glance.since.empty()) view.title += fmt::format(" for {}", glance.since);
    if (job.execution_state == ExecutionState::kQueued) {
      const auto why = jobs::resources::explanation_from_json(session_.get(below(path_of(job_), "why")));
      view.without_ranks = {"waits: " + why.message};
      return;
    }
    if (view.is_over) view.title = jobs::resources::sentence_about_end(job);
    view.without_ranks = {
        view.is_over ? "no ranks were heard of" : "no ranks have been heard of yet",
        "ranks come from `gyre run`, and from the PyTorch, Caffe2 and TensorFlow jobs of the server; mpirun and other "
        "programs say nothing of theirs",
        fmt::format("`gyre job logs {}{}` shows what they write", view.is_over ? "" : "-f ", name)};
  }

  Session& session_;
  const JobName job_;
  std::map<std::string, Tail> tails_{};
};

}  // namespace

int watch_job(const std::string& verb, const JobOptions& options, bool once,
              const std::vector<std::string>& environment) {
  cli::LiveBlock block(cli::live_options_from_environment());
  const auto say = [&block](const std::string& line) { block.write(stderr, line + "\n"); };
  JobOptions named = options;
  named.remote.verb = verb;
  const bool follows = block.draws() && !once;
  Session session = named.remote.session(environment, follows ? kPatience : std::chrono::milliseconds(0), [] {}, say);
  JobRanks ranks(session, named.find(session, environment));
  show_ranks(block, [&ranks] { return ranks.look(); }, once, kBetweenLooks);
  return 0;
}

}  // namespace gyre::app
