#include "gyre/jobs/node/internal/process_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <system_error>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/jobs/node/internal/attempt_program.h"
#include "gyre/jobs/node/internal/kept_measurements.h"
#include "gyre/jobs/node/internal/stopped_process.h"
#include "gyre/jobs/node/internal/waits.h"
#include "gyre/jobs/node/lost_node.h"
#include "gyre/jobs/orders/json_fields.h"

namespace gyre::jobs::node::internal {

using orders::JsonFields;
using orders::Phase;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::chrono::seconds kLongestEnd{10};
constexpr std::chrono::seconds kLongestRelease{10};
constexpr std::int64_t kMostRanks = 1 << 20;

}  // namespace

void end_set(const fs::path& socket) {
  try {
    if (LaunchedSet::state(socket) != LaunchState::kRuns) return;
    LaunchedSet set = LaunchedSet::find(socket);
    set.kill();
    const Deadline deadline = Deadline::after(kLongestEnd);
    while (!deadline.passed()) {
      const auto record = set.next(deadline, -1);
      if (record && record->value("type", "") == "finished") return set.release(kLongestEnd);
    }
    kill_launch(socket);  // It does not answer: it may be stopped, and go on later.
  } catch (const Error&) {
    return;  // It has gone.
  }
}

void release_set(const fs::path& socket) {
  if (LaunchedSet::state(socket) == LaunchState::kRuns) LaunchedSet::find(socket).release(kLongestRelease);
  std::error_code ignored;
  fs::remove(socket, ignored);
}

ProcessSet::ProcessSet(const AttemptTask& task, AttemptJournal& journal, const Commands& commands, fs::path socket)
    : task_(task), journal_(journal), commands_(commands), socket_(std::move(socket)) {}

void ProcessSet::add(Started process, const LogFiles& logs, bool server) {
  if (!writes_logs()) {
    process.stdout_file = logs.stdout_file;
    process.stderr_file = logs.stderr_file;
  }
  processes_.push_back(std::move(process));
  logs_.push_back(logs);
  servers_.push_back(server);
}

bool ProcessSet::writes_logs() const { return !journal_.secrets().empty() || task_.kind == AttemptTask::Kind::kSetup; }

bool ProcessSet::has_servers() const { return std::ranges::find(servers_, true) != servers_.end(); }

LaunchedSet ProcessSet::start_or_find(const Json& specification) {
  switch (LaunchedSet::state(socket_)) {
    case LaunchState::kRuns: return LaunchedSet::find(socket_);
    case LaunchState::kDied:
      throw Error(ErrorCode::kPeerLost, fmt::format("the gyre launch that held the processes of node {} was killed",
                                                    journal_.order().here().id));
    case LaunchState::kAbsent:
    case LaunchState::kStarting: break;
  }
  return LaunchedSet::start(attempt_program(task_.gyre_program), specification, task_.base, socket_, kept_open_);
}

ProcessSet::Streams ProcessSet::open_logs() const {
  Streams streams;
  if (!writes_logs()) return streams;
  // The setup task may be root's, and jobs may write where its logs lie.
  const bool refused = task_.kind == AttemptTask::Kind::kSetup && !task_.links_on_mounts;
  const auto open = [&](const std::string& path) {
    return std::make_unique<LogStream>(path, journal_.state().log_lengths.at(path), journal_.secrets(),
                                       refused ? Links::kRefused : Links::kFollowed);
  };
  for (const LogFiles& files : logs_) streams.push_back({open(files.stdout_file), open(files.stderr_file)});
  return streams;
}

void ProcessSet::note_output(Streams& streams, const Json& record) {
  const JsonFields fields(record, "a record of gyre launch");
  const auto rank = static_cast<std::size_t>(fields.integer("rank", 0, kMostRanks)) - first_rank_;
  if (rank >= streams.size()) return;
  try {
    streams[rank][fields.text("stream") == "stdout" ? 0 : 1]->write(output_of(record));
  } catch (const Error& error) {
    if (!log_failed_) journal_.note(fmt::format("output is missing from the logs: {}", error.what()));
    log_failed_ = true;
  }
}

void ProcessSet::note_end(const Json& record, LaunchedSet& set) {
  const JsonFields fields(record, "a record of gyre launch");
  if (record.at("exit_code") != 0 || fields.boolean("asked_to_end")) return;
  const auto rank = static_cast<std::size_t>(fields.integer("rank", 0, kMostRanks)) - first_rank_;
  if (rank >= servers_.size() || servers_[rank]) return;
  ++succeeded_;
  const auto main = static_cast<std::size_t>(std::ranges::count(servers_, false));
  if (has_servers() && succeeded_ == main && !main_done_) finish_main(set);
}

void ProcessSet::finish_main(LaunchedSet& set) {
  main_done_ = true;
  journal_.reach(Phase::kDone);
  obey(set);
}

void ProcessSet::obey(LaunchedSet& set) {
  const auto reason = must_stop(commands_, journal_.state());
  if (!reason) {
    if (!main_done_ || !commands_.finishing() || stop_asked_) return;
    set.stop(SIGTERM, task_.grace);  // The servers, which nobody needs any more.
    stop_asked_ = true;
    return;
  }
  const auto command = commands_.stopping();
  const std::chrono::seconds grace = command ? command->grace : task_.grace;
  if (grace.count() == 0 && !kill_asked_) {
    set.kill();
    kill_asked_ = true;
  } else if (!stop_asked_) {
    journal_.log(fmt::format("asked to end: {}", name_of(*reason)));
    set.stop(SIGTERM, grace);
  }
  stop_asked_ = true;
}

std::uint64_t ProcessSet::most_log_bytes() const {
  // The setup task is the administrator's.
  return task_.kind == AttemptTask::Kind::kSetup ? 0 : share_of_output(journal_.order());
}

LogAllowance ProcessSet::allowance_of_logs() const {
  std::vector<fs::path> paths;
  for (const LogFiles& files : logs_) paths.insert(paths.end(), {files.stdout_file, files.stderr_file});
  return {std::move(paths), most_log_bytes(), metrics_};
}

void ProcessSet::keep_within(LogAllowance& allowance) {
  if (!allowance.enforce()) return;
  journal_.note(
      fmt::format("node {}: the job's logs are cut off: they have reached the {} bytes that the logs of a job "
                  "may have on all its nodes together (`gyre server --limit job-logs`); the job goes on",
                  journal_.order().here().id, journal_.order().log_bytes));
}

ProcessSet::Ended ProcessSet::run(const Json& specification, int first_rank, const std::function<void()>& started) {
  first_rank_ = static_cast<std::size_t>(first_rank);
  if (writes_logs()) {
    std::vector<std::string> paths;
    for (const LogFiles& files : logs_) paths.insert(paths.end(), {files.stdout_file, files.stderr_file});
    journal_.remember_log_lengths(paths);
  }
  LaunchedSet set = start_or_find(specification);
  if (started) started();
  Streams streams = open_logs();
  if (has_servers() && std::ranges::find(servers_, false) == servers_.end()) finish_main(set);
  LogAllowance allowance = allowance_of_logs();
  StoppedProcess stopped;
  for (;;) {
    const Deadline limit = stop_asked_ ? Deadline::never() : wall_clock_limit(journal_.state());
    if (allowance.next().passed()) keep_within(allowance);
    if (stopped.next().passed() && stopped.look(set.peer())) {
      journal_.note(
          fmt::format("node {}: `gyre launch`, which holds the job's processes, was stopped (SIGSTOP, or a "
                      "debugger) and is continued",
                      journal_.order().here().id));
    }
    const Deadline wake = earlier(limit, earlier(allowance.next(), stopped.next()));
    const auto record = set.next(wake, commands_.fd());
    if (!record) {
      commands_.clear();
      if (commands_.leaving()) throw LeaveNow();
      obey(set);
      continue;
    }
    const std::string type = record->value("type", "dropped");
    if (type == "output") note_output(streams, *record);
    if (type == "dropped") {
      journal_.note(
          "output is missing from the logs: while the agent was gone, the job wrote more than is kept for it");
    }
    if (type == "ended") note_end(*record, set);
    if (type != "finished") continue;
    for (auto& both : streams) {
      for (auto& stream : both) stream->finish();
    }
    keep_within(allowance);
    const bool asked = !record->at("stopped_by").is_null();
    return {.exit_code = asked && main_done_ ? 0 : record->at("exit_code").get<int>(),
            .stopped = asked && must_stop(commands_, journal_.state()),
            .main_done = main_done_,
            .record = *record};
  }
}

}  // namespace gyre::jobs::node::internal
