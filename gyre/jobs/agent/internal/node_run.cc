#include "gyre/jobs/agent/internal/node_run.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "gyre/base/boot.h"
#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/folders.h"
#include "gyre/jobs/agent/code.h"
#include "gyre/jobs/agent/container.h"
#include "gyre/jobs/agent/internal/cleanliness.h"
#include "gyre/jobs/agent/internal/json_fields.h"
#include "gyre/jobs/agent/internal/needs_root.h"
#include "gyre/jobs/agent/lost_node.h"
#include "gyre/jobs/spec/write.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::agent::internal {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::chrono::seconds kLongestCleanUp{20};
constexpr std::chrono::seconds kLongestEnd{10};
constexpr fs::perms kReadableByAll =
    fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read | fs::perms::others_read;
constexpr int kCodeWithoutCommand = 255;  // No command of the job's has given one.

JobError internal_error(const std::string& node, const std::string& what) {
  return {error_code::kInternal, what, {{"node", node}}};
}

void remove_stale_sockets(const NodeFolders& folders) {
  for (const char* name : kSets) {
    end_set(folders.socket(name));
    std::error_code ignored;
    fs::remove(folders.socket(name), ignored);
    fs::remove(folders.socket(name).string() + ".json", ignored);
  }
}

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

NodeRun::NodeRun(const NodeOptions& options, NodeState state, Commands& commands, ReportSink& sink)
    : options_(options),
      folders_(options.root),
      state_(std::move(state)),
      commands_(commands),
      sink_(sink),
      secrets_(secret_values(state_.order)) {}

void NodeRun::go() {
  AttemptEnds end;
  try {
    if (state_.step == Step::kStopped) return clean_up();
    end = run_steps();
  } catch (const LeaveNow&) {
    return;
  } catch (const AttemptEnds& early) {
    end = early;
  } catch (const Error& error) {
    end = {kCodeWithoutCommand, internal_error(state_.order.here().id, error.what())};
  } catch (const std::exception& error) {
    end = {kCodeWithoutCommand, internal_error(state_.order.here().id, error.what())};
  }
  stop_at(end);
  clean_up();
}

AttemptEnds NodeRun::run_steps() {
  if (state_.step == Step::kAccepted) accept();
  if (state_.boot != boot_id()) {
    return {kCodeWithoutCommand, internal_error(state_.order.here().id, "the node was restarted while the job ran")};
  }
  prepare_folders();
  if (state_.step == Step::kPreparing) {
    unpack_code();
    run_setup();
  }
  use_private_folders();
  if (state_.step == Step::kPreparing) {
    run_preparation();
    find_facts();
  }
  sink_.update([&](NodeReport& report) {
    report.facts = state_.facts;
    report.phase = std::max(report.phase, Phase::kPrepared);
  });
  if (state_.step == Step::kPrepared) wait_for_others();
  return run_processes();
}

void NodeRun::accept() {
  remove_stale_sockets(folders_);
  // The job before this one has kept its temporary folder until now. Logs that stay on the node lie beside it.
  std::string last;
  std::getline(std::ifstream(folders_.last_job()), last);
  if (is_plain_name(last)) remove_folder(folders_.job(last));
  remove_folder(folders_.job(state_.order.job_name));
  std::ofstream(folders_.last_job()) << state_.order.job_name << '\n';
  state_.memory = shared_memory_of(options_.user);
  take(Step::kPreparing);
}

void NodeRun::prepare_folders() {
  const WorkOrder& order = state_.order;
  mounts_ = plan_mounts(order, folders_);
  const JobEnvironment environment = environment_of({});
  check_places(order, folders_, environment, mounts_);
  // The service refuses such a job; one that it has accepted before it did may still come.
  if (const auto why = why_no_container(order.job, order.cluster)) {
    throw AttemptEnds{kCodeWithoutCommand,
                      internal_error(order.here().id, fmt::format("the job cannot run on its cluster: {}", *why))};
  }
  write_programs();
  make_places(environment);
  log_folder_ = environment.log_folder;
  // Replaced as a whole: in a folder that the job may write to, a name may be a link.
  const fs::path host_file = folders_.host_file(order.job_name);
  write_file_atomically(host_file, as_bytes(mpi_host_file(order, mpi_processes(order.job))));
  fs::permissions(host_file, kReadableByAll);
  sink_.update([&](NodeReport& report) {
    report.log_folder = resolved(environment.log_folder, mounts_);
    for (const OutputPlace& output : environment.outputs) report.outputs[output.id] = resolved(output.path, mounts_);
  });
  if (state_.step != Step::kPreparing) return;
  log(fmt::format("attempt {} of job {} on node {}", order.attempt, order.job_name, order.here().id));
  if (order.job.container_settings) {
    note(fmt::format("node {}: the job's container {} is not used; it runs on the host", order.here().id,
                     order.job.container_settings->image));
  }
  for (const std::string& warning : environment.warnings) note(warning);
}

void NodeRun::unpack_code() {
  const WorkOrder& order = state_.order;
  const fs::path folder = folders_.code(order.job_name);
  if (order.code_archive.empty() || fs::exists(folder)) return;
  agent::unpack_code(order.code_archive, order.code_sha256, folder,
                     options_.user ? std::optional(options_.user->id) : std::nullopt);
  log("the job's code is unpacked");
}

void NodeRun::run_setup() {
  const auto& task = state_.order.cluster.setup_task;
  if (!task) return;
  const Json whole = spec::to_json(state_.order.cluster, spec::Secrets::kIncluded).at("nodeSetup");
  const std::string text = whole.dump();
  const std::string stamp = fmt::format("{} {:016x}", state_.boot, xxh3_64(as_bytes(text)));
  std::ifstream before(folders_.setup_stamp());
  std::string line;
  if (std::getline(before, line) && line == stamp) return;

  Variables variables = base_variables();
  variables["AZ_BATCHAI_MOUNT_ROOT"] = mount_root(state_.order, folders_);
  for (const auto& each : task->environment_variables) variables[each.name] = expand(each.value, variables).text;
  for (const auto& each : task->secrets) variables[each.name] = each.value.text.value_or("");
  std::string folder = expand(task->std_out_err_path_prefix, variables).text;
  if (!state_.order.setup_path_suffix.empty()) folder += "/" + state_.order.setup_path_suffix;
  // Jobs may have put links there. Where the mounts are links themselves, they have to be followed.
  options_.mounts == MountMethod::kBind ? make_folder_without_links(folder) : make_own_folder(folder);
  const std::string& node = state_.order.here().id;
  const LogFiles logs = {fmt::format("{}/stdout-{}.txt", folder, node), fmt::format("{}/stderr-{}.txt", folder, node)};
  sets_up_ = true;
  remember_log_lengths({logs});
  log("the cluster's setup task begins");
  // As root where we are: it sets up the machine.
  Json specification = launch_specification({started_process(task->command_line, false, variables, logs)},
                                            folders_.socket("setup"), "/", std::nullopt);
  LaunchedSet set = start_or_find("setup", specification);
  const Ended ended = follow(set, {logs}, 1);
  sets_up_ = false;
  if (ended.stopped) throw stopped_because(*must_stop());
  if (ended.exit_code != 0) {
    throw AttemptEnds{
        ended.exit_code,
        internal_error(node, fmt::format("the cluster's setup task failed on node {} with exit code {}; its output: {}",
                                         node, ended.exit_code, resolved(logs.stderr_file, mounts_).string()))};
  }
  write_file_atomically(folders_.setup_stamp(), as_bytes(stamp + "\n"));
  release("setup", set);
}

void NodeRun::run_preparation() {
  const auto& line = state_.order.job.job_preparation_command_line;
  if (!line) return;
  const JobEnvironment environment = environment_of({});
  for (const std::string& sentence : unset_names("jobPreparation", *line, environment.variables)) note(sentence);
  const LogFiles logs = {log_folder_ + "/" + preparation_log("stdout", state_.order),
                         log_folder_ + "/" + preparation_log("stderr", state_.order)};
  remember_log_lengths({logs});
  const std::string& node = state_.order.here().id;
  const std::string wish = wish_for_root(*line, environment.variables);
  if (!wish.empty()) note("the job's preparation " + wish);
  log("the job's preparation begins");
  Json specification =
      launch_specification({started_process(*line, false, environment.variables, logs)}, folders_.socket("prep"),
                           work_folder(state_.order, folders_), options_.user);
  LaunchedSet set = start_or_find("prep", specification);
  const Ended ended = follow(set, {logs}, 1);
  if (ended.stopped) throw stopped_because(*must_stop());
  if (ended.exit_code == 0) return;  // Released once it is written down that it is over.
  // The call may not be what has failed.
  std::string why = obstacles({*line}, ended.exit_code);
  if (!wish.empty()) why += "; it " + wish;
  throw AttemptEnds{ended.exit_code,
                    JobError{error_code::kPreparationFailed,
                             fmt::format("the job's preparation failed on node {} with exit code {}{}; its output: {}",
                                         node, ended.exit_code, why, preparation_log("stderr", state_.order)),
                             {{"node", node}}}};
}

void NodeRun::find_facts() {
  const WorkOrder& order = state_.order;
  NodeFacts facts;
  if (mpi_processes(order.job) > 0) facts.mpi = find_mpi(environment_of({}).variables, options_.user);
  ports_.emplace(order.here().address, ports_needed(order, order.node));
  facts.ports = ports_->ports();
  if (order.nodes.size() > 1) facts.shell_port = start_shell();
  state_.facts = facts;  // Last: they say that the node is prepared.
  take(Step::kPrepared);
  if (LaunchedSet::state(folders_.socket("prep")) == LaunchState::kRuns) {
    LaunchedSet preparation = LaunchedSet::find(folders_.socket("prep"));
    release("prep", preparation);
  }
  log("prepared");
}

void NodeRun::wait_for_others() {
  for (;;) {
    commands_.clear();
    if (commands_.leaving()) throw LeaveNow();
    if (const auto reason = must_stop()) throw stopped_because(*reason);
    if (const auto facts = commands_.running()) {
      if (facts->size() != state_.order.nodes.size()) {
        throw Error(ErrorCode::kProtocol, "the service sent the facts of other nodes than the job's");
      }
      state_.all_facts = *facts;
      return take(Step::kRunning);
    }
    pollfd wait{.fd = commands_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, wall_clock_limit().poll_timeout_ms());
  }
}

void NodeRun::stop_at(const AttemptEnds& end) {
  ExitRecord record;
  record.exit_code = end.exit_code;
  record.error = end.error;
  record.asked_to_end = end.asked_to_end;
  record.started_us = state_.started_us;
  record.ended_us = wall_clock_us();
  state_.record = std::move(record);
  if (end.error) log(fmt::format("{}: {}", end.error->code, end.error->message));
  log(fmt::format("ended with exit code {}", end.exit_code));
  try {
    take(Step::kStopped);
  } catch (const Error& error) {
    // A full disk: the service hears of the end all the same, from memory.
    note(fmt::format("the exit record could not be written: {}", error.what()));
  }
}

void NodeRun::clean_up() {
  ports_.reset();
  for (const char* name : kSets) end_set(folders_.socket(name));
  std::vector<std::string> before = state_.memory;
  try {
    use_private_folders();
    if (memory_) before.clear();
  } catch (const Error&) {
    before = shared_memory_of(options_.user);  // Everybody's: nothing of it is known to be the job's.
  }
  try {
    state_.record->left_behind = clean_up_after(state_.order, before, options_.user, Deadline::after(kLongestCleanUp));
    leave_private_folders();
    if (!state_.order.jobs_root.empty()) remove_mounts(state_.order.jobs_root);
    const fs::path job_mounts = job_mount_root(state_.order, folders_);
    // The folder itself may be one of all nodes, and others may not be done.
    state_.order.job_mount_root.empty() ? remove_folder(job_mounts) : remove_mounts(job_mounts);
    remove_folder(folders_.shared(state_.order.job_name));
    fs::remove(folders_.shell_table());
  } catch (const std::exception& error) {
    state_.record->left_behind.emplace_back(error.what());
  }
  for (const std::string& what : state_.record->left_behind) {
    note(fmt::format("node {}: the job left {}", state_.order.here().id, what));
  }
  NodeReport last;
  sink_.update([&](NodeReport& report) {
    last = report;
    last.record = state_.record;
    last.phase = Phase::kEnded;
    last.facts = state_.facts;
  });
  try {
    const std::string text = to_json(last).dump();
    write_file_atomically(folders_.record(state_.order.attempt), as_bytes(text));
    if (!options_.record_copies.empty()) {
      write_file_atomically(options_.record_copies / (state_.order.here().agent_name() + ".json"), as_bytes(text));
    }
    fs::remove(folders_.current());
  } catch (const std::exception& failure) {
    // current.json, which says the same, stays.
    if (last.notes.size() < NodeReport::kMostNotes) {
      last.notes.push_back(fmt::format("the exit record could not be written: {}", failure.what()));
    }
  }
  sink_.update([&](NodeReport& report) { report = last; });
}

}  // namespace gyre::jobs::agent::internal
