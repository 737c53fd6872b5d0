#include "gyre/jobs/node/internal/node_run.h"

#include <fmt/format.h>
#include <chrono>
#include <optional>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/folders.h"
#include "gyre/base/reach.h"
#include "gyre/jobs/node/code.h"
#include "gyre/jobs/node/internal/base_variables.h"
#include "gyre/jobs/node/internal/cleanliness.h"
#include "gyre/jobs/node/internal/failure_causes.h"
#include "gyre/jobs/node/internal/job_shells.h"
#include "gyre/jobs/node/internal/kept_measurements.h"
#include "gyre/jobs/node/internal/shared_folders.h"
#include "gyre/jobs/node/internal/waiting_launcher.h"
#include "gyre/jobs/node/internal/waits.h"
#include "gyre/jobs/node/internal/work_files.h"
#include "gyre/jobs/node/launch_plan.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/resources/job_end.h"

namespace gyre::jobs::node::internal {

using orders::NodeFacts;
using orders::Phase;
using orders::StopReason;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::chrono::seconds kLongestCleanUp{20};
/// How long a node may wait for the news that the last worker of another node has ended.
constexpr std::chrono::seconds kLongestNews{3};
constexpr std::uint64_t kEndOfLog = std::uint64_t{64} << 10;

/// Its last kEndOfLog bytes; empty where it cannot be read.
std::string end_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::uint64_t length = length_of(path);
  file.seekg(static_cast<std::streamoff>(length > kEndOfLog ? length - kEndOfLog : 0));
  return {std::istreambuf_iterator<char>(file), {}};
}

int processes_before(const std::vector<NodePlan>& plans, int node) {
  int count = 0;
  for (int i = 0; i < node; ++i) count += static_cast<int>(plans[static_cast<std::size_t>(i)].processes.size());
  return count;
}

constexpr fs::perms kReadableByAll =
    fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read | fs::perms::others_read;

}  // namespace

NodeRun::NodeRun(const AttemptTask& task, const Commands& commands, AttemptHost& host, JobCommands& job_commands)
    : task_(task),
      folders_(task.root),
      commands_(commands),
      job_commands_(job_commands),
      journal_(task, host),
      begun_(task.state.step >= Step::kRunning) {}

void NodeRun::set_up() {
  try {
    run_setup();
  } catch (const AttemptEnds& end) {
    journal_.stop(end);
  } catch (const std::exception& error) {
    journal_.stop(internal_failure(order(), error, begun_));
  }
}

void NodeRun::go() {
  const bool stopped_before = journal_.state().step == Step::kStopped;
  try {
    if (task_.has_places) make_places();
    if (!stopped_before) journal_.stop(run_steps());
  } catch (const AttemptEnds& early) {
    if (!stopped_before) journal_.stop(early);
  } catch (const std::exception& error) {
    if (!stopped_before) journal_.stop(internal_failure(order(), error, begun_));
  }
  clean_up();
}

AttemptEnds NodeRun::run_steps() {
  find_environment();
  if (journal_.state().step == Step::kPreparing) {
    if (task_.in_container) check_image();
    unpack_code();
    make_environment();
    run_preparation();
    find_facts();
  }
  journal_.reach(Phase::kPrepared);
  if (journal_.state().step == Step::kPrepared) wait_for_others();
  return run_processes();
}

JobEnvironment NodeRun::environment_of(const Variables& of_process) const {
  const Variables base = base_variables(task_.base, task_.gyre_program, order(), folders_);
  JobEnvironment environment = job_environment(order(), folders_, base, of_process);
  if (environment_ && environment_->fd() >= 0) environment_->enter(environment.variables);
  return environment;
}

Started NodeRun::started_process(const std::string& line, bool rank, const Variables& environment) const {
  Started process;
  process.command = shell_command(line, rank, order().job);
  process.environment = environment;
  return process;
}

AttemptEnds NodeRun::stopped() const {
  return stopped_because(must_stop(commands_, journal_.state()).value_or(StopReason::kRequest), order());
}

void NodeRun::run_setup() {
  const spec::SetupTask& setup = *order().cluster.setup_task;
  Variables variables = base_variables(task_.base, task_.gyre_program, order(), folders_);
  variables["AZ_BATCHAI_MOUNT_ROOT"] = mount_root(order(), folders_);
  for (const auto& each : setup.environment_variables) variables[each.name] = expand(each.value, variables).text;
  for (const auto& each : setup.secrets) variables[each.name] = each.value.text.value_or("");
  std::string folder = expand(setup.std_out_err_path_prefix, variables).text;
  if (!order().setup_path_suffix.empty()) folder += "/" + order().setup_path_suffix;
  // Jobs may have put links there. Where the mounts are links themselves, they have to be followed.
  task_.links_on_mounts ? static_cast<void>(fs::create_directories(folder)) : make_folder_without_links(folder);
  const std::string& node = order().here().id;
  const LogFiles logs = {fmt::format("{}/stdout-{}.txt", folder, node), fmt::format("{}/stderr-{}.txt", folder, node)};
  ProcessSet set(task_, journal_, commands_, folders_.setup_socket());
  set.add(started_process(setup.command_line, false, variables), logs);
  journal_.log("the cluster's setup task begins");
  const auto ended = set.run(launch_specification(set.processes(), folders_.setup_socket(), "/"));
  if (ended.stopped) throw stopped();
  if (ended.exit_code == 0) return;
  const std::string output = resolved(logs.stderr_file, plan_mounts(order(), folders_)).string();
  AttemptEnds end = internal_failure(
      order(), fmt::format("the cluster's setup task failed on node {} with exit code {}; its output: {}", node,
                           ended.exit_code, output));
  end.exit_code = ended.exit_code;
  throw end;
}

void NodeRun::make_place(const std::string& what, const std::string& folder) const {
  // Jobs of other accounts will have theirs beside it, if the mount is open to them.
  const std::string& segment = order().path_segment;
  const std::size_t own = segment.empty() ? std::string::npos : folder.rfind("/" + segment + "/");
  std::error_code failure;
  if (own != std::string::npos)
    failure = make_shared_folders(fs::path(folder.substr(0, own + 1) + segment).parent_path());
  if (!failure) fs::create_directories(folder, failure);
  if (!failure) return;
  const MountPlan mounts = plan_mounts(order(), folders_);
  const auto outside = [&](const fs::path& place) { return resolved(place, mounts); };
  throw unusable_path(order(),
                      fmt::format("cannot make a place for {}: user '{}', as whom the job runs, cannot make the folder "
                                  "{}: {}{}",
                                  what, user_name(own_user().user), folder, failure.message(),
                                  who_may_open(folder, task_.own_account, outside)),
                      "path", folder);
}

void NodeRun::make_places() {
  const JobEnvironment environment = environment_of({});
  make_place("the job's logs (stdOutErrPathPrefix)", environment.log_folder);
  log_folder_ = environment.log_folder;
  journal_.open_log(log_folder_);
  if (journal_.state().step == Step::kStopped) return;
  for (const OutputPlace& output : environment.outputs) {
    make_place(fmt::format("output directory {}", output.id), output.path);
  }
  // Replaced as a whole: a name in the job's folder may be a link.
  const fs::path host_file = folders_.host_file(order().job_name);
  write_file_atomically(host_file, as_bytes(mpi_host_file(order(), mpi_processes(order().job))));
  fs::permissions(host_file, kReadableByAll);
  if (journal_.state().step != Step::kPreparing) return;
  journal_.log(fmt::format("attempt {} of job {} on node {}", order().attempt, order().job_name, order().here().id));
  if (order().job.container_settings && !task_.in_container) {
    journal_.note(fmt::format("node {}: the job's container ({}) is not used; it runs on the host", order().here().id,
                              words_of_image(*order().job.container_settings)));
  }
  for (const std::string& warning : environment.warnings) journal_.note(warning);
}

void NodeRun::unpack_code() {
  const fs::path folder = folders_.code(order().job_name);
  if (task_.code_descriptor < 0 || fs::exists(folder)) return;
  node::unpack_code(task_.code_descriptor, order().code_sha256, folder);
  journal_.log("the job's code is unpacked");
}

AttemptEnds NodeRun::unusable_environment(const std::string& why) const {
  const std::string& node = order().here().id;
  return {1, resources::ResourceError{resources::error_code::kPreparationFailed,
                                      fmt::format("node {} cannot make the job's environment: {}", node, why),
                                      {{"node", node}}}};
}

void NodeRun::check_image() const {
  const std::string lack = lacks_programs(order().job);
  if (lack.empty()) return;
  const std::string& node = order().here().id;
  throw AttemptEnds{resources::kNotTheJobsExitCode,
                    resources::ResourceError{
                        resources::error_code::kContainer,
                        fmt::format("node {} cannot run the job's container: its {} has {}; jobs run their commands in "
                                    "a shell of the image, and need /usr/bin/env: use an image that has both",
                                    node, words_of_image(*order().job.container_settings), lack),
                        {{"node", node}}}};
}

void NodeRun::find_environment() {
  if (!order().job.requirements) return;
  try {
    const std::string text = requirements_text(*order().job.requirements, task_.code_descriptor);
    environment_.emplace(environments_of_account(), identity_of(text, environment_of({}).variables));
    if (journal_.state().step > Step::kPreparing) environment_->hold();
    write_file_atomically(folders_.requirements(), as_bytes(text));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound && error.code() != ErrorCode::kInvalidArgument) throw;
    throw unusable_environment(error.what());
  }
}

void NodeRun::make_environment() {
  if (!environment_) return;
  if (!environment_->is_whole()) {
    journal_.note(fmt::format("node {}: makes the job's environment, or waits for another job that makes it: {}",
                              order().here().id, environment_->folder().string()));
  }
  const std::string log = environment_log("stderr", order());
  const std::string line = environment_->line_that_makes_it(folders_.requirements(), task_.gyre_program);
  const Variables variables = environment_of({}).variables;
  // Somebody may remove it between its making and our having it, to make room.
  do {
    ProcessSet set(task_, journal_, commands_, folders_.socket("env"));
    set.add(started_process(line, false, variables),
            {log_folder_ + "/" + environment_log("stdout", order()), log_folder_ + "/" + log});
    const auto ended = set.run(launch_specification(set.processes(), folders_.socket("env"), "/"));
    if (ended.stopped) throw stopped();
    release_set(folders_.socket("env"));
    if (ended.exit_code == 0) continue;
    const AttemptEnds end = unusable_environment(fmt::format(
        "{} (exit code {}); its output: {}", words_of_pip(end_of_file(log_folder_ + "/" + log)), ended.exit_code, log));
    if (end.error->message.find("No space left on device") == std::string::npos) throw end;
    throw Error(ErrorCode::kResourceExhausted, end.error->message);
  } while (!environment_->hold());
  journal_.log("the job's environment is there");
  environment_->make_room(task_.environment_bytes);
}

void NodeRun::run_preparation() {
  const auto& line = order().job.job_preparation_command_line;
  if (!line) return;
  const Variables variables = environment_of({}).variables;
  for (const std::string& sentence : unset_names("jobPreparation", *line, variables)) journal_.note(sentence);
  const std::string wish = task_.in_container ? "" : wish_for_root(*line, variables, order(), folders_);
  if (!wish.empty()) journal_.note("the job's preparation " + wish);
  ProcessSet set(task_, journal_, commands_, folders_.socket("prep"));
  set.add(started_process(*line, false, variables), {log_folder_ + "/" + preparation_log("stdout", order()),
                                                     log_folder_ + "/" + preparation_log("stderr", order())});
  journal_.log("the job's preparation begins");
  const auto ended =
      set.run(launch_specification(set.processes(), folders_.socket("prep"), work_folder(order(), folders_)));
  if (ended.stopped) throw stopped();
  if (ended.exit_code == 0) return;  // Released once it is written down that it is over.
  // The call may not be what has failed.
  std::string why = obstacles({*line}, variables, order(), ended.exit_code);
  if (!wish.empty()) why += "; it " + wish;
  const std::string& node = order().here().id;
  throw AttemptEnds{ended.exit_code,
                    resources::ResourceError{
                        resources::error_code::kPreparationFailed,
                        fmt::format("the job's preparation failed on node {} with exit code {}{}; its output: {}", node,
                                    ended.exit_code, why, preparation_log("stderr", order())),
                        {{"node", node}}}};
}

void NodeRun::find_facts() {
  NodeFacts facts;
  Variables variables = environment_of({}).variables;
  order_timelines(variables, order(), log_folder_);  // Of ranks that other nodes start here.
  if (mpi_processes(order().job) > 0) facts.mpi = find_mpi(variables);
  ports_.emplace(order().here().address, ports_needed(order(), order().node));
  facts.ports = ports_->ports();
  if (order().nodes.size() > 1) facts.shell_port = start_shell(task_, variables);
  journal_.take_facts(facts);
  release_set(folders_.socket("prep"));
  journal_.log("prepared");
}

void NodeRun::wait_for_others() {
  for (;;) {
    if (must_stop(commands_, journal_.state())) throw stopped();
    if (const auto facts = commands_.running()) {
      if (facts->size() != order().nodes.size()) {
        throw Error(ErrorCode::kProtocol, "the service sent the facts of other nodes than the job's");
      }
      return journal_.run_with(*facts);
    }
    wait_for_command(commands_, wall_clock_limit(journal_.state()));
  }
}

AttemptEnds NodeRun::hold_until_finished() {
  journal_.reach(Phase::kDone);
  for (;;) {
    if (commands_.finishing()) return {};
    if (const auto stop = commands_.stopping()) {
      AttemptEnds end = stopped();
      end.was_done = stop->reason == StopReason::kLeaseLost;
      return end;
    }
    // The others end at their limit, and need this node's shell until then.
    const Deadline limit = wall_clock_limit(journal_.state(), task_.grace + kLongestNews);
    if (limit.passed()) return stopped();
    wait_for_command(commands_, limit);
  }
}

bool NodeRun::all_workers_are_done() {
  if (order().nodes.size() == 1) return true;
  const Deadline limit = Deadline::after(kLongestNews);
  for (;;) {
    if (commands_.finishing()) return true;
    if (must_stop(commands_, journal_.state()) || limit.passed()) return false;
    wait_for_command(commands_, limit);
  }
}

AttemptEnds NodeRun::run_processes() {
  const std::vector<NodePlan> plans = launch_plan(order(), journal_.state().all_facts);
  const NodePlan& plan = plans[static_cast<std::size_t>(order().node)];
  write_shell_table(order(), journal_.state().all_facts, folders_);
  allow_commands(plan);
  journal_.reach(Phase::kRunning);
  if (ports_) ports_->release();
  if (plan.processes.empty()) return hold_until_finished();
  const auto ended = run_plan(plan, plans);
  if (ended.stopped) return stopped();
  const bool failed = ended.exit_code != 0 && !(ended.main_done && all_workers_are_done());
  return failed ? failure_of_job(order(), folders_, environment_of({}).variables, ended) : hold_until_finished();
}

void NodeRun::allow_commands(const NodePlan& plan) {
  CommandPlace place{.environments = {},
                     .first_rank = plan.first_rank,
                     .folder = work_folder(order(), folders_),
                     .mark = shell_mark(order())};
  for (const ProcessPlan& process : plan.processes) {
    place.environments.push_back(environment_of(process.variables).variables);
  }
  if (place.environments.empty()) place.environments.push_back(environment_of({}).variables);
  job_commands_.allow(std::move(place));
}

ProcessSet::Ended NodeRun::run_plan(const NodePlan& plan, const std::vector<NodePlan>& plans) {
  const fs::path socket = folders_.socket("ranks");
  ProcessSet set(task_, journal_, commands_, socket);
  const metrics::JobFileOrder kept = metrics_order(order(), log_folder_);
  // Of processes with roles the job is known to start each by itself; another one may be mpirun, or `gyre run`.
  const bool tells = plan.ranks || std::holds_alternative<spec::TensorFlowSettings>(order().job.toolkit);
  set.count_metrics(kept.path);
  if (environment_) set.keep_open(environment_->fd());
  for (const ProcessPlan& process : plan.processes) {
    JobEnvironment environment = environment_of(process.variables);
    for (const auto& sentence : unset_names("the command line", process.shell_line, environment.variables)) {
      if (set.processes().empty()) journal_.note(sentence);
    }
    // Where `gyre launch` starts no ranks, `gyre run` does, if anybody.
    if (!tells) environment.variables[metrics::kJobFileVariable] = text_of(kept);
    order_timelines(environment.variables, order(), log_folder_);
    Started started = started_process(process.shell_line, plan.ranks, environment.variables);
    started.role = process.role;
    started.index = process.index;
    started.role_size = process.role_size;
    set.add(std::move(started),
            {fmt::format("{}/stdout{}.txt", log_folder_, process.log_suffix),
             fmt::format("{}/stderr{}.txt", log_folder_, process.log_suffix)},
            process.server);
  }
  Json specification = launch_specification(set.processes(), socket, work_folder(order(), folders_));
  if (plan.ranks) add_ranks(specification, order(), plans);
  if (tells) {
    specification["metrics"] = kept.path.string();
    specification["metrics_bytes"] = kept.most_bytes;
  }
  if (!plan.ranks) specification["metrics_first"] = processes_before(plans, order().node);
  const auto ended =
      set.run(specification, specification.contains("job") ? plan.first_rank : 0, [&] { begun_ = true; });
  if (const std::string missing = text_noted(folders_.missing_output(), ::geteuid()); !missing.empty())
    journal_.note(fmt::format("gyre run on node {}: {}", order().here().id, missing));
  return ended;
}

void NodeRun::clean_up() {
  ports_.reset();
  job_commands_.end();  // Before anything is looked for that the job has left.
  for (const char* name : kSetsOfJob) end_set(folders_.socket(name));
  try {
    const auto account = task_.own_account ? std::optional(own_user()) : std::nullopt;
    for (const std::string& what :
         clean_up_after(order(), journal_.state().memory, account, Deadline::after(kLongestCleanUp))) {
      journal_.add_left_behind(what);
    }
    fs::remove(folders_.shell_table());
  } catch (const std::exception& error) {
    journal_.add_left_behind(error.what());
  }
  keep_work_files();
  if (journal_.state().record->left_behind.empty()) return;  // All is written down.
  try {
    journal_.take(Step::kStopped);
  } catch (const Error& error) {
    journal_.note(fmt::format("the exit record could not be written: {}", error.what()));
  }
}

/// Of a node whose files nobody can list: output directories are the first node's, unless they lie on a mount.
void NodeRun::tell_of_own_outputs() {
  if (!task_.has_places) return;
  const std::string own = jobs_root(order(), folders_).string() + "/";
  const Deadline deadline = Deadline::after(longest_keeping({}));
  for (const OutputPlace& output : environment_of({}).outputs) {
    if (!output.path.starts_with(own)) continue;
    const WorkFilesReport report = internal::keep_work_files({.folder = output.path}, [&]() -> std::string {
      if (commands_.leaving()) throw LeaveNow();
      return deadline.passed() ? "it took too long" : "";
    });
    if (report.left.files == 0) continue;
    journal_.note(fmt::format("node {}: {}", order().here().id, sentence_about_outputs(output.id, report.left)));
  }
}

/// The files in the folder where the job started (ADR 85).
void NodeRun::keep_work_files() {
  const auto stopped = commands_.stopping();
  // Files of a node that has lost its lease would get in the way of the job's next attempt.
  const bool lost = stopped && stopped->reason == StopReason::kLeaseLost && !journal_.state().record->was_done;
  if (!order().is_master()) return tell_of_own_outputs();
  if (lost) return;
  WorkFiles files{.folder = work_folder(order(), folders_), .patterns = order().job.output_files};
  std::error_code failure;
  const bool has_started = std::filesystem::is_directory(std::filesystem::symlink_status(files.folder, failure));
  if (!task_.has_places || log_folder_.empty() || !has_started) return;
  const JobEnvironment environment = environment_of({});
  files.kept = environment.kept_files;
  files.others = {environment.log_folder,
                  environment.kept_files,
                  job_mount_root(order(), folders_),
                  folders_.host_file(order().job_name),
                  folders_.shared(order().job_name),
                  order().shared_folder};
  for (const OutputPlace& output : environment.outputs) files.others.emplace_back(output.path);
  std::optional<CodeContent> code;
  files.is_home = order().code_sha256.empty();
  try {
    if (!files.is_home) files.code = &code.emplace(task_.code_descriptor);
  } catch (const Error& error) {
    journal_.note(fmt::format("all files in the job's work folder count as new: {}", error.what()));
  }
  const std::chrono::minutes longest = longest_keeping(order().job);
  const Deadline deadline = Deadline::after(longest);
  const WorkFilesReport report = internal::keep_work_files(files, [&]() -> std::string {
    if (commands_.leaving()) throw LeaveNow();
    if (!stopped && commands_.stopping()) return "the node was asked to end";
    return deadline.passed() ? fmt::format("it took longer than {} min", longest.count()) : "";
  });
  for (const std::string& sentence : sentences_of(report)) journal_.note(sentence);
}

}  // namespace gyre::jobs::node::internal
