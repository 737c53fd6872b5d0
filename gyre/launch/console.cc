#include "gyre/launch/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "gyre/base/error.h"
#include "gyre/base/rank_file.h"
#include "gyre/base/trace_file.h"
#include "gyre/launch/internal/console_run.h"
#include "gyre/launch/internal/job_metrics.h"
#include "gyre/launch/internal/own_ranks.h"
#include "gyre/launch/internal/watchers.h"

namespace gyre::launch {

namespace {

/// Rank 0 writes it, or each rank its own, some time after the start; every rank would then fail with it.
void ensure_can_write(const std::filesystem::path& file) {
  std::error_code none;
  const bool there = std::filesystem::exists(file, none);
  const std::filesystem::path target = there ? file : file.has_parent_path() ? file.parent_path() : ".";
  int failure = ::access(target.c_str(), there ? W_OK : W_OK | X_OK) == 0 ? 0 : errno;
  if (std::filesystem::is_directory(file, none)) failure = EISDIR;
  if (failure != 0) throw system_error(fmt::format("cannot write the timeline {}", file.string()), failure);
}

/// Their ranks may have been killed in the middle of a write; they may also never have begun.
void complete_timelines(const std::filesystem::path& timeline, const OwnRanks& own, int ranks) {
  const int files = has_rank_mark(timeline) ? ranks : 1;
  for (int i = 0; i < files; ++i) static_cast<void>(complete_trace_file(file_of_rank(timeline, own.at(i))));
}

void check(const LaunchOptions& options, const OwnRanks& own) {
  if (options.servers < 0 || options.servers >= own.job_size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} of {} ranks cannot be servers: a job has at least one worker", options.servers,
                            own.job_size()));
  }
  // Before log files are made for it. A host that has only servers does not need it.
  if (own.at(0) < own.job_size() - options.servers) {
    find_command(options.command.front(), variable_of(options.environment, "PATH"));
  }
  ensure_open_files(options.ranks);
  if (options.timeline && (own.contains(0) || has_rank_mark(*options.timeline))) {
    ensure_can_write(file_of_rank(*options.timeline, own.at(0)));
  }
}

}  // namespace

LaunchResult run_on_console(const LaunchOptions& options) {
  if (options.command.empty()) throw Error(ErrorCode::kInvalidArgument, "no command to run");
  if (options.ranks < 1 || options.ranks > kMostRanksPerHost) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} ranks were asked for; 1 to {} can run on one host", options.ranks, kMostRanksPerHost));
  }
  const OwnRanks own(options.part, options.ranks);
  check(options, own);
  std::optional<JobMetrics> metrics = make_job_metrics(options, own.job_size());
  Watchers watchers(options.watcher, metrics ? &*metrics : nullptr);
  LaunchOptions watched = options;
  watched.watcher = &watchers;
  LaunchResult result;
  for (int restarts = 0;; ++restarts) {
    ConsoleRun run(watched, restarts, metrics ? &*metrics : nullptr);
    result = run.run();
    if (!result.first_failed_rank || restarts == options.max_restarts) break;
    watchers.restarting(restarts + 1);
  }
  if (metrics) metrics->finish(result.exit_code);
  if (options.timeline) complete_timelines(*options.timeline, own, options.ranks);
  return result;
}

}  // namespace gyre::launch
