// The processes of a NodeRun: what they get, what they write, how they end.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <nlohmann/json.hpp>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/base/reach.h"
#include "gyre/jobs/agent/internal/cleanliness.h"
#include "gyre/jobs/agent/internal/json_fields.h"
#include "gyre/jobs/agent/internal/needs_root.h"
#include "gyre/jobs/agent/internal/node_probe.h"
#include "gyre/jobs/agent/internal/node_run.h"
#include "gyre/jobs/agent/internal/unreachable.h"
#include "gyre/jobs/agent/internal/waiting_launcher.h"
#include "gyre/jobs/agent/remote_shell.h"
#include "gyre/jobs/spec/duration.h"

namespace gyre::jobs::agent::internal {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::chrono::seconds kLongestRelease{10};
/// How long a node may wait for the news that the last worker of another node has ended.
constexpr std::chrono::seconds kLongestNews{3};

std::string now_as_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace

Variables NodeRun::base_variables() const {
  Variables variables = options_.base;
  const std::string path = variables.contains("PATH") ? variables["PATH"] : "/usr/local/bin:/usr/bin:/bin";
  variables["PATH"] = fmt::format("{}:{}:{}", folders_.programs().string(), path, folders_.fallbacks().string());
  variables["HOME"] = job_folder(state_.order, folders_);
  if (options_.user) {
    variables["USER"] = variables["LOGNAME"] = options_.user->name;
    variables["TMPDIR"] = temporary_folder(state_.order.attempt);
  }
  variables["GYRE_PROGRAM"] = options_.gyre_program;
  variables[kRemoteShellVariable] = folders_.programs() / "ssh";
  variables[kShellTableVariable] = folders_.shell_table();
  variables[launch_contract::kJobFolder] = job_folder(state_.order, folders_);
  variables[kAttemptVariable] = state_.order.attempt;
  variables[kNodeVariable] = state_.order.here().id;
  return variables;
}

JobEnvironment NodeRun::environment_of(const Variables& of_process) const {
  return job_environment(state_.order, folders_, base_variables(), of_process);
}

Started NodeRun::started_process(const std::string& line, bool rank, const Variables& environment,
                                 const LogFiles& logs) const {
  Started process;
  process.command = shell_command(line, rank, state_.order.job);
  process.environment = environment;
  if (!has_secrets()) {
    process.stdout_file = logs.stdout_file;
    process.stderr_file = logs.stderr_file;
  }
  return process;
}

void NodeRun::remember_log_lengths(const std::vector<LogFiles>& logs) {
  if (!has_secrets()) return;
  {
    const ActingAs owner = as_owner_of_logs();
    for (const LogFiles& files : logs) {
      for (const std::string& path : {files.stdout_file, files.stderr_file}) {
        state_.log_lengths.try_emplace(path, length_of(path));
      }
    }
  }
  save(state_, folders_);
}

std::vector<std::vector<std::unique_ptr<LogStream>>> NodeRun::open_logs(const std::vector<LogFiles>& logs) {
  const ActingAs owner = as_owner_of_logs();
  std::vector<std::vector<std::unique_ptr<LogStream>>> streams;
  for (const LogFiles& files : logs) {
    std::vector<std::unique_ptr<LogStream>> both;
    for (const std::string& path : {files.stdout_file, files.stderr_file}) {
      both.push_back(std::make_unique<LogStream>(path, state_.log_lengths[path], secrets_));
    }
    streams.push_back(std::move(both));
  }
  return streams;
}

LaunchedSet NodeRun::start_or_find(const std::string& name, const Json& specification) {
  const fs::path socket = folders_.socket(name);
  switch (LaunchedSet::state(socket)) {
    case LaunchState::kRuns: return LaunchedSet::find(socket);
    case LaunchState::kDied:
      throw Error(ErrorCode::kPeerLost,
                  fmt::format("the gyre launch that held the processes of node {} was killed", state_.order.here().id));
    case LaunchState::kAbsent:
    case LaunchState::kStarting: break;
  }
  return LaunchedSet::start(options_.gyre_program, specification, options_.base, socket);
}

void NodeRun::write_output(std::vector<std::vector<std::unique_ptr<LogStream>>>& streams, const Json& record) {
  const JsonFields fields(record, "a record of gyre launch");
  const auto rank =
      static_cast<std::size_t>(fields.integer("rank", 0, 1 << 20)) - static_cast<std::size_t>(first_rank_);
  if (rank >= streams.size()) return;
  const std::size_t which = fields.text("stream") == "stdout" ? 0 : 1;
  try {
    streams[rank][which]->write(output_of(record));
  } catch (const Error& error) {
    if (!log_failed_) note(fmt::format("output is missing from the logs: {}", error.what()));
    log_failed_ = true;
  }
}

void NodeRun::obey(LaunchedSet& set) {
  const auto reason = must_stop();
  if (!reason) {
    if (!main_done_ || !commands_.finishing() || stop_asked_) return;
    set.stop(SIGTERM, options_.grace);  // The servers, which nobody needs any more.
    stop_asked_ = true;
    return;
  }
  const auto command = commands_.stopping();
  const std::chrono::seconds grace = command ? command->grace : options_.grace;
  if (grace.count() == 0 && !kill_asked_) {
    set.kill();
    kill_asked_ = true;
  } else if (!stop_asked_) {
    log(fmt::format("asked to end: {}", name_of(*reason)));
    set.stop(SIGTERM, grace);
  }
  stop_asked_ = true;
}

NodeRun::Ended NodeRun::follow(LaunchedSet& set, const std::vector<LogFiles>& logs, std::size_t main,
                               const std::vector<bool>& servers) {
  auto streams = has_secrets() ? open_logs(logs) : std::vector<std::vector<std::unique_ptr<LogStream>>>();
  std::size_t succeeded = 0;
  stop_asked_ = kill_asked_ = main_done_ = false;
  const auto finish_main = [&] {
    main_done_ = true;
    sink_.update([](NodeReport& report) { report.phase = Phase::kDone; });
    obey(set);
  };
  if (!servers.empty() && main == 0) finish_main();
  for (;;) {
    const auto record = set.next(stop_asked_ ? Deadline::never() : wall_clock_limit(), commands_.fd());
    if (!record) {
      commands_.clear();
      if (commands_.leaving()) throw LeaveNow();
      obey(set);
      continue;
    }
    const std::string type = record->value("type", "dropped");
    if (type == "output") write_output(streams, *record);
    if (type == "dropped") note("output is missing from the logs: more was written than is kept without an agent");
    if (type == "ended" && (*record)["exit_code"] == 0 && !(*record)["asked_to_end"].get<bool>()) {
      const auto rank = (*record)["rank"].get<std::size_t>() - static_cast<std::size_t>(first_rank_);
      const bool server = rank < servers.size() && servers[rank];
      succeeded += server ? 0U : 1U;
      if (!servers.empty() && succeeded == main && !main_done_) finish_main();
    }
    if (type != "finished") continue;
    for (auto& both : streams) {
      for (auto& stream : both) stream->finish();
    }
    const bool stopped = !(*record)["stopped_by"].is_null();
    last_finished_ = *record;
    return {stopped && main_done_ ? 0 : (*record)["exit_code"].get<int>(), stopped && must_stop()};
  }
}

void NodeRun::release(const std::string& name, LaunchedSet& set) {
  set.release(kLongestRelease);
  std::error_code ignored;
  fs::remove(folders_.socket(name), ignored);
}

AttemptEnds NodeRun::hold_until_finished() {
  sink_.update([](NodeReport& report) { report.phase = Phase::kDone; });
  for (;;) {
    commands_.clear();
    if (commands_.leaving()) throw LeaveNow();
    if (commands_.finishing()) return {};
    if (const auto reason = must_stop()) return stopped_because(*reason);
    pollfd wait{.fd = commands_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, wall_clock_limit().poll_timeout_ms());
  }
}

bool NodeRun::all_workers_are_done() {
  if (!main_done_ || state_.order.nodes.size() == 1) return main_done_;
  const Deadline limit = Deadline::after(kLongestNews);
  for (;;) {
    commands_.clear();
    if (commands_.leaving()) throw LeaveNow();
    if (commands_.finishing()) return true;
    if (must_stop() || limit.passed()) return false;
    pollfd wait{.fd = commands_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, limit.poll_timeout_ms());
  }
}

AttemptEnds NodeRun::run_processes() {
  const WorkOrder& order = state_.order;
  const std::vector<NodePlan> plans = launch_plan(order, state_.all_facts);
  const NodePlan& plan = plans[static_cast<std::size_t>(order.node)];
  sink_.update([](NodeReport& report) { report.phase = std::max(report.phase, Phase::kRunning); });
  write_shell_table();
  if (ports_) ports_->release();
  if (plan.processes.empty()) return hold_until_finished();

  std::vector<Started> processes;
  std::vector<LogFiles> logs;
  std::vector<bool> servers;
  for (const ProcessPlan& process : plan.processes) {
    const JobEnvironment environment = environment_of(process.variables);
    for (const auto& sentence : unset_names("the command line", process.shell_line, environment.variables)) {
      if (processes.empty()) note(sentence);
    }
    logs.push_back({fmt::format("{}/stdout{}.txt", log_folder_, process.log_suffix),
                    fmt::format("{}/stderr{}.txt", log_folder_, process.log_suffix)});
    processes.push_back(started_process(process.shell_line, plan.ranks, environment.variables, logs.back()));
    processes.back().role = process.role;
    processes.back().index = process.index;
    processes.back().role_size = process.role_size;
    servers.push_back(process.server);
  }
  remember_log_lengths(logs);
  Json specification =
      launch_specification(processes, folders_.socket("ranks"), work_folder(order, folders_), options_.user);
  if (plan.ranks) add_ranks(specification, order, plans);
  first_rank_ = plan.ranks && specification.contains("job") ? plan.first_rank : 0;
  LaunchedSet set = start_or_find("ranks", specification);
  const auto main = static_cast<std::size_t>(std::ranges::count(servers, false));
  const bool has_servers = main < servers.size();
  const Ended ended = follow(set, logs, main, has_servers ? servers : std::vector<bool>());
  if (ended.stopped) return stopped_because(*must_stop());
  if (ended.exit_code != 0 && !all_workers_are_done()) return failed_with(ended.exit_code);
  return hold_until_finished();
}

AttemptEnds NodeRun::failed_with(int exit_code) const {
  const std::string& node = state_.order.here().id;
  std::map<std::string, std::string> details = {{"node", node}};
  std::string who = "the job's command";
  if (last_finished_.contains("first_failed_rank") && last_finished_["first_failed_rank"].is_number()) {
    details["rank"] = last_finished_["first_failed_rank"].dump();
  }
  std::string how = fmt::format("exit code {}", exit_code);
  if (exit_code > 128 && exit_code <= 128 + SIGRTMAX) {
    details["signal"] = signal_name(exit_code - 128);
    how += fmt::format(" ({})", details["signal"]);
  }
  if (exit_code == 127) how += ", by which a shell says that a command was not found";
  how += obstacles(program_paths(state_.order.job), exit_code);
  const uid_t user = options_.user ? options_.user->id.user : ::geteuid();
  if (const std::string noted = failure_noted(folders_.private_to_job() / kFailureNote, user); !noted.empty()) {
    how += "; " + noted;
  }
  return {exit_code, JobError{error_code::kJobFailed, fmt::format("{} failed on node {} with {}", who, node, how),
                              std::move(details)}};
}

std::string NodeRun::obstacles(const std::vector<std::string>& lines, int exit_code) const {
  const JobUser user = options_.user ? *options_.user : JobUser{own_user(), user_name(::geteuid())};
  Variables variables = environment_of({}).variables;
  for (const spec::SecretVariable& secret : state_.order.job.secrets) variables.erase(secret.name);
  auto sentence = unreachable(lines, variables, user);
  // What a shell, or Python without its modules, ends with.
  const bool may_be_another = exit_code == 1 || exit_code == 126 || exit_code == 127;
  if (!sentence && may_be_another && !lines.empty()) sentence = passed_over(lines.front(), variables, user);
  return sentence ? "; " + *sentence : "";
}

std::string NodeRun::wish_for_root(const std::string& line, const Variables& variables) const {
  const std::string user = options_.user ? options_.user->name : user_name(::geteuid());
  const auto sentence = [&](const std::string& manager, const std::string& where) {
    return fmt::format(
        "calls {}{}, which needs root, and runs as user '{}'; have an administrator install the packages on the nodes, "
        "or use the cluster's setup task (`gyre cluster create --setup-task LINE`), which runs as root if the server "
        "does",
        manager, where, user);
  };
  Variables known = variables;
  for (const char* name : {"EUID", "UID"}) known[name] = fmt::format("${}", name);  // The shell's, by which lines ask.
  const std::string expanded = expand(line, known).text;
  if (const auto manager = package_manager_for_root(expanded)) return sentence(*manager, "");
  for (const std::string& script : scripts_of(expanded)) {
    const std::string text = beginning_of_file(script, work_folder(state_.order, folders_), options_.user);
    const bool other_language =
        text.starts_with("#!") && text.substr(0, text.find('\n')).find("sh") == std::string::npos;
    if (other_language || text.find('\0') != std::string::npos) continue;
    if (const auto manager = package_manager_for_root(text)) return sentence(*manager, fmt::format(" (in {})", script));
  }
  return "";
}

std::optional<StopReason> NodeRun::must_stop() const {
  if (const auto command = commands_.stopping()) return command->reason;
  if (wall_clock_limit().passed()) return StopReason::kWallClock;
  return std::nullopt;
}

AttemptEnds NodeRun::stopped_because(StopReason reason) const {
  constexpr int kCode = 128 + SIGTERM;
  const std::string& node = state_.order.here().id;
  const auto failed = [&](const char* code, const std::string& message) {
    return AttemptEnds{kCode, JobError{code, message, {{"node", node}, {"reason", name_of(reason)}}}, true};
  };
  switch (reason) {
    case StopReason::kRequest: return failed(error_code::kJobFailed, "the job was terminated");
    case StopReason::kWallClock:
      return failed(error_code::kJobFailed,
                    fmt::format("the job was ended because constraints.maxWallClockTime, {}, has passed",
                                spec::iso_8601_duration(state_.order.job.max_wall_clock_time)));
    case StopReason::kLeaseLost:
      return failed(error_code::kInternal, fmt::format("node {} could not reach the service for too long", node));
    case StopReason::kOtherNode:
    case StopReason::kPreempted: break;
  }
  return {kCode, std::nullopt, true};
}

Deadline NodeRun::wall_clock_limit() const {
  const double limit_s = static_cast<double>(state_.order.job.max_wall_clock_time.count());
  const double left_s = state_.started_s + limit_s - boot_time_s();
  return Deadline::after(std::chrono::milliseconds(static_cast<std::int64_t>(std::max(left_s, 0.0) * 1000)));
}

void NodeRun::note(const std::string& sentence) {
  const auto& known = state_.notes;
  if (known.size() >= NodeReport::kMostNotes || std::ranges::find(known, sentence) != known.end()) return;
  state_.notes.push_back(sentence);
  sink_.update([&](NodeReport& report) { report.notes = state_.notes; });
  log(sentence);
}

void NodeRun::log(const std::string& sentence) {
  if (log_folder_.empty()) return;
  const fs::path path = fs::path(log_folder_) / execution_log(state_.order);
  const ActingAs job = as_the_job();
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) return;
  Redactor redactor(secrets_);
  std::string line = redactor.pass(fmt::format("{} {}\n", now_as_text(), sentence));
  line += redactor.finish();
  // It is for people; what must not be lost is in the record.
  [[maybe_unused]] const ssize_t ignored = ::write(file.get(), line.data(), line.size());
}

void NodeRun::take(Step step) {
  state_.step = step;
  save(state_, folders_);
}

}  // namespace gyre::jobs::agent::internal
