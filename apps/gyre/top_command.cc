#include "apps/gyre/top_command.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <set>
#include <string_view>

#include "apps/gyre/job_top.h"
#include "apps/gyre/rank_screen.h"
#include "apps/gyre/usage_error.h"
#include "gyre/base/error.h"
#include "gyre/cli/live_block.h"
#include "gyre/jobs/client/session.h"
#include "gyre/metrics/file.h"
#include "gyre/metrics/news.h"
#include "gyre/metrics/overview.h"
#include "gyre/metrics/series.h"
#include "gyre/page/job_state.h"

namespace gyre::app {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kBetweenLooks{1};
constexpr const char* kVerb = "gyre top";

constexpr const char* kExplanation = R"(
Ranks that need attention come first: failed, lost, late (the slowest of these first). WAITS is the share of the last
ten seconds that the training waited for the exchange; LAST VALUE, when the program logged one or its optimizer ended a
step; DETAIL, why a rank is where it is, and of a job the last line of its log. It ends with the run or job (exit code
0, however that ended), or with Ctrl-C.

A name with a dot, or one that begins with a slash, is a file: run.metrics, ./run, /data/run. Any other is a job of the
job server, unless there is a metrics file of that name here. With -w, -e, --server or --token-file it is always a job.

Examples:
  gyre run -n 4 --metrics run.metrics -- python train.py
  gyre top run.metrics
  gyre top train-1)";

/// The file of a run, and what becomes of its ranks.
class RunFile final : public metrics::FileVisitor {
 public:
  explicit RunFile(const std::string& path) : reader_(path, *this) {}

  void sample(const metrics::Sample& sample) override {
    overview_.sample(sample);
    // The news of a file that was full then were dropped.
    if (known_.insert(sample.rank).second) {
      state_.hear({.kind = metrics::News::Kind::kStarted, .rank = sample.rank, .time_us = sample.time_us}, 0);
    }
  }
  void note(std::string_view key, std::string_view value) override { overview_.note(key, value); }
  void event(std::string_view line) override {
    overview_.event(line);
    const auto news = metrics::parse_news(line);
    if (!news) return;
    if (news->kind == metrics::News::Kind::kStarted) known_.insert(news->rank);
    state_.hear(*news, 0);
  }

  RankView look() {
    const bool is_written = reader_.is_written();  // Before: nothing is written after this was false.
    reader_.read();
    const auto& notes = overview_.notes();
    const auto code = notes.find("exit_code");
    const bool has_ended = code != notes.end();
    // Its launcher was killed.
    if (!is_written && !has_ended && !state_.is_over()) {
      state_.hear({.kind = metrics::News::Kind::kFinished, .code = -1}, 0);
    }
    const auto note_of = [&notes](const char* key) {
      const auto found = notes.find(key);
      return found == notes.end() ? std::string() : found->second;
    };
    return {.title = fmt::format("{}: {} {}, started {}, {}", note_of("command"), note_of("ranks"),
                                 note_of("ranks") == "1" ? "rank" : "ranks", note_of("started"),
                                 metrics::end_of(has_ended ? &code->second : nullptr, is_written)),
            .job = Json::parse(state_.json("", overview_, {})),
            .without_ranks = {"no ranks have been heard of yet"},
            .is_over = !is_written || has_ended};
  }

 private:
  metrics::Overview overview_{};
  page::JobState state_{};
  std::set<int> known_{};
  metrics::FileReader reader_;
};

/// No job has such a name.
bool can_only_be_a_file(const std::string& name) {
  return name.starts_with('/') || name.find('.') != std::string::npos || name.find('/') != name.rfind('/');
}

}  // namespace

TopCommand::TopCommand(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("top", "Watch the ranks of a run or a job: steps, waits, processors, memory");
  verb->add_option("FILE-or-JOB", job_.job,
                   "What `gyre run --metrics` writes, or a job of a job server: NAME, or EXPERIMENT/NAME")
      ->required()
      ->type_name("");
  verb->add_option("-e,--experiment", job_.experiment, "The job's experiment (default: found by the name)")
      ->type_name("NAME");
  job_.remote.add_options(*verb, Remote::kWorkspace);
  verb->add_flag("--once", once_, "Print it once, as without a terminal");
  verb->footer(kExplanation);
}

bool TopCommand::is_file(const std::vector<std::string>& environment) const {
  if (!job_.experiment.empty() || !job_.remote.workspace.empty() || !job_.remote.server.empty() ||
      !job_.remote.token_file.empty()) {
    return false;
  }
  if (can_only_be_a_file(job_.job)) return true;
  if (!metrics::is_metrics_file(job_.job)) return false;
  try {
    jobs::client::Session session = job_.remote.session(environment);
    static_cast<void>(job_.find(session, environment));
  } catch (const std::exception&) {
    return true;  // No server, or no such job.
  }
  throw UsageError(
      fmt::format("'{0}' is a metrics file here and a job of the job server; `gyre top ./{0}` shows the file, "
                  "`gyre job top {0}` the job",
                  job_.job));
}

int TopCommand::watch_file() const {
  RunFile file(job_.job);
  cli::LiveBlock block(cli::live_options_from_environment());
  show_ranks(block, [&file] { return file.look(); }, once_, kBetweenLooks);
  return 0;
}

int TopCommand::run(const std::vector<std::string>& environment) const {
  if (is_file(environment)) return watch_file();
  try {
    return watch_job(kVerb, job_, once_, environment);
  } catch (const Error& error) {
    const bool is_here = fs::exists(job_.job);
    if (error.code() != ErrorCode::kNotFound && !(is_here && error.code() == ErrorCode::kPeerLost)) throw;
    throw Error(error.code(), fmt::format("{}; {}", error.what(),
                                          is_here ? fmt::format("and '{}' here is not a metrics file", job_.job)
                                                  : fmt::format("nor is there a file '{}' here", job_.job)));
  }
}

}  // namespace gyre::app
