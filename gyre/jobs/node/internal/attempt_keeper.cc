#include "gyre/jobs/node/internal/attempt_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "gyre/base/boot.h"
#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/base/reach.h"
#include "gyre/jobs/containers/program_files.h"
#include "gyre/jobs/node/code_cache.h"
#include "gyre/jobs/node/container.h"
#include "gyre/jobs/node/internal/attempt_journal.h"
#include "gyre/jobs/node/internal/attempt_places.h"
#include "gyre/jobs/node/internal/base_variables.h"
#include "gyre/jobs/node/internal/cleanliness.h"
#include "gyre/jobs/node/internal/process_set.h"
#include "gyre/jobs/node/internal/stopped_process.h"
#include "gyre/jobs/node/internal/waits.h"
#include "gyre/jobs/node/internal/work_files.h"
#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/node/lost_node.h"
#include "gyre/jobs/orders/json_fields.h"
#include "gyre/jobs/spec/write.h"

namespace gyre::jobs::node::internal {

using orders::JsonFields;
using orders::NodeFacts;
using orders::NodeReport;
using orders::Phase;
using orders::phase_named;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kMostRestarts = 3;
constexpr std::chrono::seconds kLongestCleanUp{20};
// What a process of an attempt may take longer than the job's processes: to end after them, killed or asked to end, and
// to clean up, where it waits for each `gyre launch`.
constexpr std::chrono::seconds kSlackOfKill{2};
constexpr std::chrono::seconds kSlackOfStop{10};
constexpr std::chrono::seconds kSlackOfCleanUp{90};
constexpr std::chrono::seconds kLongestExit{5};

/// Of the cluster's setup task as it is, on this boot of the machine.
std::string setup_stamp(const SavedAttempt& state) {
  const Json whole = spec::to_json(state.order.cluster, spec::Secrets::kIncluded).at("nodeSetup");
  const std::string text = whole.dump();
  return fmt::format("{} {:016x}", state.boot, xxh3_64(as_bytes(text)));
}

}  // namespace

AttemptKeeper::AttemptKeeper(const NodeOptions& options, SavedAttempt state, Commands& commands, ReportSink& sink)
    : options_(options),
      folders_(options.root, options.own),
      state_(std::move(state)),
      commands_(commands),
      sink_(sink),
      limits_(options.root, state_.order) {
  if (runs_in_container(state_.order)) container_.emplace(options_, state_.order);
}

void AttemptKeeper::go() {
  try {
    try {
      state_.step != Step::kStopped ? prepare() : go_on_at_the_end();
    } catch (const AttemptEnds& end) {
      stop_at(end);
    } catch (const std::exception& error) {
      if (state_.step != Step::kStopped) stop_at(internal_failure(state_.order, error, state_.step >= Step::kRunning));
    }
    run_job();
  } catch (const LeaveNow&) {
    return;
  }
  clean_up();
  write_record();
}

void AttemptKeeper::prepare() {
  if (state_.step == Step::kAccepted) accept();
  if (state_.boot != boot_id()) throw internal_failure(state_.order, "the node was restarted while the job ran");
  // The service refuses such a job; one that it has accepted before it did may still come.
  if (const auto why = why_no_container(state_.order.job, state_.order.cluster)) {
    throw internal_failure(state_.order, fmt::format("the job cannot run on its cluster: {}", *why));
  }
  const AttemptPlaces places(options_, state_.order);
  places.make();
  has_places_ = true;
  tell(places);
  if (state_.step == Step::kPreparing) set_up();
  use_private_folders();
  if (state_.step == Step::kPreparing) await_code();
  container_ ? use_container() : use_limits();
}

void AttemptKeeper::use_limits() {
  for (const std::string& sentence : limits_.make()) {
    const std::string note_of_node = fmt::format("node {}: {}", state_.order.here().id, sentence);
    if (std::ranges::find(state_.notes, note_of_node) == state_.notes.end()) note(note_of_node);
  }
}

void AttemptKeeper::use_container() {
  const std::string& node = state_.order.here().id;
  if (container_->runs()) return;
  if (state_.step > Step::kPreparing) {
    throw internal_failure(state_.order, fmt::format("the job's container on node {} has ended", node));
  }
  const containers::Interruption interruption{.wanted =
                                                  [&] {
                                                    commands_.clear();
                                                    return commands_.leaving() ||
                                                           must_stop(commands_, state_).has_value();
                                                  },
                                              .wake_fd = commands_.fd()};
  try {
    container_->start(
        open_code(), interruption, [&](const std::string& sentence) { note(sentence); },
        [&](const std::string& text) {
          for (const std::string& line : split(text, '\n')) {
            if (lines_.size() < kMostKeptLines) lines_.push_back(log_line(line, secret_values(state_.order)));
          }
        });
  } catch (const Error& error) {
    if (commands_.leaving()) throw LeaveNow();
    if (const auto reason = must_stop(commands_, state_)) throw stopped_because(*reason, state_.order);
    throw internal_failure(state_.order, error, false);
  }
}

void AttemptKeeper::tell(const AttemptPlaces& places) {
  sink_.update([&](NodeReport& report) {
    report.log_folder = places.log_folder();
    report.outputs = places.outputs();
    report.sends_logs = places.sends_logs();
  });
}

void AttemptKeeper::go_on_at_the_end() {
  use_private_folders();
  if (!container_) use_limits();
  tell(AttemptPlaces(options_, state_.order));
}

void AttemptKeeper::use_private_folders() {
  if (options_.user) {
    // A container has a /dev/shm of its own, and its runtime needs that of the machine.
    private_.use(state_.order.attempt, options_.user->id, options_.mounts == MountMethod::kBind && !container_);
  }
}

std::vector<std::string> AttemptKeeper::memory_of_others() const {
  if (private_.has_memory()) return {};
  // Without the folder that it should have had, nothing of everybody's is known to be the attempt's.
  const bool lost = options_.user && options_.mounts == MountMethod::kBind;
  return lost ? shared_memory_of(options_.user->id.user) : state_.memory;
}

void AttemptKeeper::accept() {
  if (container_) container_->expect_none();
  std::error_code ignored;
  for (const fs::path& socket : folders_.sockets()) {
    // By its command line: a job's account may have put anything in the place of its socket.
    if (fs::symlink_status(socket, ignored).type() != fs::file_type::not_found) kill_launch(socket);
  }
  fs::remove(folders_.setup_socket(), ignored);
  clear_node(state_.order, folders_);
  state_.memory = shared_memory_of(options_.user ? options_.user->id.user : ::geteuid());
  state_.step = Step::kPreparing;
  save(state_, folders_);
}

void AttemptKeeper::set_up() {
  if (!state_.order.cluster.setup_task) return;
  const std::string stamp = setup_stamp(state_);
  std::ifstream before(folders_.setup_stamp());
  std::string line;
  if (std::getline(before, line) && line == stamp) return;
  run_process(AttemptTask::Kind::kSetup);
  if (state_.step == Step::kStopped) return;
  write_own_file(folders_, folders_.setup_stamp(), stamp + "\n");
  release_set(folders_.setup_socket());
}

void AttemptKeeper::run_job() {
  try {
    run_process(AttemptTask::Kind::kJob);
    cleaned_ = true;
  } catch (const AttemptEnds& end) {
    if (state_.step != Step::kStopped) stop_at(end);
  } catch (const std::exception& error) {
    if (state_.step != Step::kStopped) stop_at(internal_failure(state_.order, error, state_.step >= Step::kRunning));
  }
}

AttemptTask AttemptKeeper::task(AttemptTask::Kind kind, bool inside) const {
  AttemptTask task;
  task.kind = kind;
  task.root = options_.root;
  task.gyre_program = options_.gyre_program;
  task.base = options_.base;
  task.grace = options_.grace;
  task.environment_bytes = options_.environment_bytes;
  task.has_places = has_places_;
  task.links_on_mounts = options_.mounts == MountMethod::kLink;
  task.state = state_;
  if (kind == AttemptTask::Kind::kSetup) return task;
  task.in_container = inside;
  if (inside) task.gyre_program = containers::kProgramInContainer;
  // The container goes with everything that is in it.
  task.own_account = options_.user.has_value() && !inside;
  task.base = base_of_job(options_, state_.order);
  task.state.memory = memory_of_others();
  task.lines = lines_;
  task.state.order = without_cluster_secrets(state_.order);
  return task;
}

void AttemptKeeper::await_code() {
  if (state_.order.code_sha256.empty()) return;
  if (options_.codes == nullptr) throw Error(ErrorCode::kInternal, "there is nowhere to get the job's code from");
  while (!options_.codes->open(state_.order.code_sha256)) {
    if (const auto reason = must_stop(commands_, state_)) throw stopped_because(*reason, state_.order);
    wait_for_command(commands_, wall_clock_limit(state_));
  }
}

UniqueFd AttemptKeeper::open_code() const {
  if (state_.order.code_sha256.empty() || options_.codes == nullptr) return {};
  try {
    return options_.codes->open(state_.order.code_sha256).value_or(UniqueFd());
  } catch (const Error&) {
    return {};
  }
}

void AttemptKeeper::run_process(AttemptTask::Kind kind) {
  const bool of_job = kind == AttemptTask::Kind::kJob;
  const std::string name = fmt::format("the process of the attempt on node {}", state_.order.here().id);
  for (int restarts = 0;; ++restarts) {
    const UniqueFd code = of_job ? open_code() : UniqueFd();
    // Without a container nothing of the job has begun, so that only its end is left to do.
    const bool inside = of_job && container_ && (state_.step != Step::kStopped || container_->runs());
    AttemptChild process(task(kind, inside), of_job && options_.user ? std::optional(options_.user->id) : std::nullopt,
                         code, inside ? std::optional(container_->door()) : std::nullopt,
                         of_job ? limits_.cgroups() : std::vector<std::string>());
    if (of_job) lines_.clear();  // Now they are its own.
    const std::string fault = serve(process);
    if (inside) container_->count_kills();
    // Not before: while it lives, the notes are those that it tells, and more.
    if (std::exchange(was_continued_, false)) {
      note(fmt::format("node {}: the process of the attempt was stopped (SIGSTOP, or a debugger) and was continued",
                       state_.order.here().id));
    }
    const auto reason = must_stop(commands_, state_);
    const std::string end = process.end(Deadline::after(fault.empty() ? kLongestExit : std::chrono::seconds(0)));
    if (fault.empty() && end.empty() && (!of_job || state_.step == Step::kStopped)) return;
    if (!fault.empty() && reason) throw stopped_because(*reason, state_.order);
    if (!fault.empty()) throw internal_failure(state_.order, fmt::format("{} {}", name, fault));
    if (inside && state_.step != Step::kStopped && !container_->runs()) {
      const char* why = container_->kills() == 0 ? ": somebody removed it, or its memory was used up" : "";
      throw internal_failure(state_.order,
                             fmt::format("the job's container on node {} has ended{}", state_.order.here().id, why));
    }
    const std::string how = end.empty() ? "it left its work undone" : end;
    if (restarts == kMostRestarts) {
      throw internal_failure(state_.order, fmt::format("{} has ended {} times ({})", name, restarts + 1, how));
    }
    note(fmt::format("{} has ended ({}) and is started again", name, how));
  }
}

std::string AttemptKeeper::serve(AttemptChild& process) {
  Told told;
  if (state_.step == Step::kStopped) told.cleaned_by = end_of_clean_up();
  StoppedProcess stopped;
  try {
    for (;;) {
      commands_.clear();
      if (commands_.leaving()) throw LeaveNow();
      pass_on(process, told);
      const Deadline limit = patience(told);
      if (limit.passed()) return "did not end in time";
      if (stopped.next().passed() && stopped.look(process.pid())) was_continued_ = true;
      const Deadline wake = earlier(limit, stopped.next());
      if (const auto line = process.lines().next(wake, {commands_.fd(), process.ended_fd()})) {
        obey(*line, process, told);
        continue;
      }
      if (!process.has_ended()) continue;
      while (const auto line = process.lines().next(Deadline::after(std::chrono::milliseconds(0)), {})) {
        obey(*line, process, told);
      }
      return "";
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kPeerLost) return "";
    return fmt::format("sent an invalid line: {}", error.what());
  } catch (const std::exception& error) {
    return fmt::format("sent an invalid line: {}", error.what());
  }
}

void AttemptKeeper::obey(const Json& line, AttemptChild& process, Told& told) {
  const JsonFields fields(line, "a line from the process of the attempt");
  if (fields.has(attempt_line::kSave)) return take_progress(fields.at(attempt_line::kSave), process, told);
  if (fields.has(attempt_line::kReport)) return take_report(fields.at(attempt_line::kReport));
  std::string text = fields.text(attempt_line::kLog, kLongestKeptLine);
  if (lines_.size() < kMostKeptLines) lines_.push_back(std::move(text));
}

void AttemptKeeper::take_progress(const Json& progress, AttemptChild& process, Told& told) {
  SavedAttempt next = with_progress(state_, progress);
  if (next.step == Step::kRunning && next.all_facts.size() != next.order.nodes.size()) {
    throw Error(ErrorCode::kCorruptData, "the attempt runs before all nodes are prepared");
  }
  if (next.record) next.record->asked_to_end = next.record->asked_to_end && must_stop(commands_, state_);
  if (next.step == Step::kStopped && state_.step != Step::kStopped) told.cleaned_by = end_of_clean_up();
  state_ = std::move(next);
  Json answer = {{attempt_line::kSaved, ""}};
  try {
    save(state_, folders_);
  } catch (const Error& error) {
    answer = {{attempt_line::kSaved, error.what()}, {attempt_line::kCode, static_cast<int>(error.code())}};
    if (state_.step == Step::kStopped) mark_ended(folders_);
  }
  process.lines().post(answer);
}

void AttemptKeeper::take_report(const Json& json) {
  const JsonFields fields(json, "a report from the process of the attempt");
  const auto phase = phase_named(fields.text("phase"));
  const bool possible = phase && *phase != Phase::kEnded && (*phase < Phase::kPrepared || state_.facts);
  if (!possible) fields.refuse("phase", "is none that the attempt can be in");
  state_.notes = with_more_notes(std::move(state_.notes), fields.at("notes"));
  sink_.update([&](NodeReport& report) {
    report.phase = std::max(report.phase, *phase);
    if (*phase >= Phase::kPrepared) report.facts = state_.facts;
    report.notes = state_.notes;
  });
}

void AttemptKeeper::pass_on(AttemptChild& process, Told& told) {
  JsonLines& lines = process.lines();
  if (const auto facts = commands_.running(); facts && !told.run) {
    told.run = true;
    if (facts->size() == state_.order.nodes.size()) state_.all_facts = *facts;
    Json all = Json::array();
    for (const NodeFacts& each : *facts) all.push_back(to_json(each));
    lines.post({{attempt_line::kRun, all}});
  }
  if (commands_.finishing() && !told.finish) {
    told.finish = true;
    lines.post({{attempt_line::kFinish, true}});
  }
  for (CommandStart& start : commands_.take_starts()) {
    lines.post({{attempt_line::kCommand, start.rank.value_or(-1)}}, std::move(start.channel));
  }
  const auto stop = commands_.stopping();
  if (!stop || (told.stop && told.stop->grace == stop->grace)) return;
  told.stop = stop;
  told.stopped_by = Deadline::after(stop->grace + (stop->grace.count() == 0 ? kSlackOfKill : kSlackOfStop));
  lines.post({{attempt_line::kStop, {{"reason", name_of(stop->reason)}, {"grace_seconds", stop->grace.count()}}}});
}

Deadline AttemptKeeper::end_of_clean_up() const {
  return Deadline::after(kSlackOfCleanUp + longest_keeping(state_.order.job));
}

Deadline AttemptKeeper::patience(const Told& told) const {
  if (state_.step == Step::kStopped) return told.cleaned_by;
  if (told.stop) return told.stopped_by;
  return wall_clock_limit(state_, options_.grace + kSlackOfStop);
}

void AttemptKeeper::note(const std::string& sentence) {
  if (state_.notes.size() >= NodeReport::kMostNotes) return;
  state_.notes.push_back(sentence);
  sink_.update([&](NodeReport& report) { report.notes = state_.notes; });
}

void AttemptKeeper::stop_at(const AttemptEnds& end) {
  state_.record = record_of(end, state_.started_us);
  state_.step = Step::kStopped;
  for (const std::string& sentence : sentences_about(end))
    lines_.push_back(log_line(sentence, secret_values(state_.order)));
  try {
    save(state_, folders_);
  } catch (const Error& error) {
    // A full disk: the service hears of the end all the same, from memory. A node program after us must not go on with
    // it.
    mark_ended(folders_);
    note(fmt::format("the exit record could not be written: {}", error.what()));
  }
}

void AttemptKeeper::end_processes() {
  for (const fs::path& socket : folders_.sockets()) kill_launch(socket);
  const auto account = options_.user ? std::optional(options_.user->id) : std::nullopt;
  for (const std::string& what :
       clean_up_after(state_.order, memory_of_others(), account, Deadline::after(kLongestCleanUp))) {
    state_.record->left_behind.push_back(what);
    note(fmt::format("node {}: the job left {}", state_.order.here().id, what));
  }
}

void AttemptKeeper::tell_of_kills() {
  if (!state_.order.job.memory_per_node) return;
  try {
    if (container_) container_->count_kills();
    const std::int64_t kills = container_ ? container_->kills() : limits_.kills();
    if (kills == 0) return;
    const bool may_be_why = state_.record->error && !state_.record->asked_to_end;
    if (may_be_why) return blame_kills(state_.order, *state_.record, kills);
    note(words_about_kills(state_.order, state_.record->error, kills));
  } catch (const Error&) {
    return;  // The job has ended all the same.
  }
}

void AttemptKeeper::clean_up() {
  tell_of_kills();
  try {
    if (container_) container_->remove();
    if (!cleaned_) end_processes();
    limits_.remove();
    end_set(folders_.setup_socket());
    private_.leave();
    remove_mounts_of_job(state_.order, folders_);
  } catch (const std::exception& error) {
    state_.record->left_behind.emplace_back(error.what());
    note(fmt::format("node {}: the job left {}", state_.order.here().id, error.what()));
  }
}

void AttemptKeeper::write_record() {
  NodeReport last;
  sink_.update([&](NodeReport& report) {
    last = report;
    last.record = state_.record;
    last.phase = Phase::kEnded;
    last.facts = state_.facts;
    last.notes = state_.notes;
  });
  try {
    Json record = to_json(last);
    record[kOrderOfRecord] = to_json(state_.order);
    write_own_file(folders_, folders_.record(state_.order.attempt),
                   record.dump(-1, ' ', false, Json::error_handler_t::replace));
    remove_state(folders_);
  } catch (const std::exception& failure) {
    // current.json, which says the same, stays, or else what mark_ended() has left.
    if (last.notes.size() < NodeReport::kMostNotes) {
      last.notes.push_back(fmt::format("the exit record could not be written: {}", failure.what()));
    }
  }
  sink_.update([&](NodeReport& report) { report = last; });
}

}  // namespace gyre::jobs::node::internal
