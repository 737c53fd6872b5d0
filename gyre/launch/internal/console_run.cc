#include "gyre/launch/internal/console_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/cores.h"
#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/launch/host.h"
#include "gyre/launch/internal/log_folder.h"
#include "gyre/launch/internal/service_notes.h"

namespace gyre::launch {

namespace {

/// How many lines may follow the traceback with which a program ends: what libraries say on the way out.
constexpr std::size_t kMostLastWords = 30;
/// An agent whose ranks have all ended waits so long, at most, to be told which rank of the job failed first.
constexpr std::chrono::seconds kLongestWaitForDecision{20};

int prepare_logs(const LaunchOptions& options, const OwnRanks& own, int restarts) {
  if (!options.log_dir || restarts > 0) return 0;  // After a restart the logs go on.
  return prepare_log_folder(*options.log_dir, own);
}

std::vector<RankOutput> make_outputs(const LaunchOptions& options, const OwnRanks& own) {
  std::vector<RankOutput> outputs;
  for (std::size_t index = 0; index < own.all().size(); ++index) {
    const int rank = own.at(index);
    UniqueFd log;
    if (options.log_dir) log = open_log(*options.log_dir / log_name(rank));
    const int shown = index < options.shown.size() ? options.shown[index] : kShowBoth;
    outputs.emplace_back(rank, std::move(log), shown, !options.verbose);
    if (options.forwards_logs) outputs.back().keep_log();
  }
  return outputs;
}

/// Whether a rank has ended with this because of Ctrl-C: its own, or that of the ranks that it reached. Not every rank
/// notices its own, since libraries may drop a KeyboardInterrupt (NumPy does while it converts an object of another
/// library). Such a rank goes on until it needs another one.
bool follows_from_interrupt(const PythonError& error) {
  constexpr std::array<std::string_view, 4> kOthersHaveEnded = {
      "gyre.errors.PeerLeftError:", "gyre.errors.PeerLostError:", "gyre.errors.AbortedError:",
      // With which an op of ours fails in a tf.function.
      "tensorflow.python.framework.errors_impl.AbortedError:"};
  return error.error == "KeyboardInterrupt" ||
         std::ranges::any_of(kOthersHaveEnded, [&](std::string_view begin) { return error.error.starts_with(begin); });
}

std::string current_folder() {
  std::error_code gone;
  const std::filesystem::path folder = std::filesystem::current_path(gone);
  return folder == "/" || gone ? "/" : folder.string() + "/";
}

/// Which rank gets input; nothing when none of ours does.
std::optional<int> choose_input_rank(const LaunchOptions& options, const OwnRanks& own) {
  const bool by_itself = !options.stdin_rank && ::isatty(options.stdin_fd) == 1;
  const int rank = by_itself ? 0 : options.stdin_rank.value_or(-1);
  return own.contains(rank) && options.lifeline_fd < 0 ? std::optional(rank) : std::nullopt;
}

}  // namespace

ConsoleRun::ConsoleRun(const LaunchOptions& options, int restarts, JobMetrics* metrics)
    : options_(options),
      restarts_(restarts),
      agent_(options.lifeline_fd >= 0),
      own_(options.part, options.ranks),
      size_(own_.job_size()),
      earlier_logs_(prepare_logs(options, own_, restarts)),
      folder_(current_folder()),
      outputs_(make_outputs(options, own_)),
      output_(options.stdout_fd, options.stderr_fd, size_, options.colour),
      out_of_memory_kills_before_(out_of_memory_kills()),
      cgroup_kills_before_(kills_in_own_cgroup()),
      input_rank_(choose_input_rank(options, own_)),
      input_(input_rank_ ? std::make_optional<InputRelay>(options.stdin_fd, !options.stdin_rank) : std::nullopt),
      metrics_(metrics),
      intake_(make_intake(metrics)),
      ranks_(rank_set_options(restarts), *this) {}

std::optional<MetricsIntake> ConsoleRun::make_intake(JobMetrics* file) {
  if (file != nullptr) {
    return std::make_optional<MetricsIntake>([file](std::span<const metrics::Sample> samples) { file->add(samples); });
  }
  if (!is_agent() || !options_.forwards_metrics) return std::nullopt;
  return std::make_optional<MetricsIntake>([this](std::span<const metrics::Sample> samples) {
    FromAgent words;
    words.metrics = as_text(metrics::blocks_of(samples));
    tell(words);
  });
}

void ConsoleRun::take_metrics() {
  if (!intake_ || (is_agent() && output_.backlogged())) return;  // They would grow our queue.
  intake_->advance();
  for (const std::string& words : {intake_->take_words(), metrics_ != nullptr ? metrics_->take_words() : ""}) {
    if (!words.empty()) output_.say(words);
  }
}

RankSetOptions ConsoleRun::rank_set_options(int restarts) const {
  RankSpec rank;
  rank.command = options_.command;
  rank.environment = options_.environment;
  rank.role = options_.role;
  if (intake_) rank.inherited.push_back({launch_contract::kMetricsDescriptor, intake_->rank_end()});
  RankSetOptions options;
  options.ranks.assign(static_cast<std::size_t>(options_.ranks), rank);
  options.servers = options_.servers;
  const int workers = size_ - options_.servers;
  for (const int number : own_.all()) {
    if (number < workers) continue;
    RankSpec& spec = options.ranks[own_.index_of(number)];
    spec.command = options_.server_command;
    spec.role = "server";
    spec.index = number - workers;
    spec.role_size = options_.servers;
  }
  if (input_) options.ranks[own_.index_of(*input_rank_)].stdin_fd = input_->rank_end();
  options.part = options_.part;
  options.master_address = options_.master_address;
  options.master_port = options_.master_port;
  options.run_id = options_.run_id;
  options.restarts = restarts;
  options.max_restarts = options_.max_restarts;
  options.timeline = options_.timeline;
  options.log_level = options_.log_level;
  options.decided_elsewhere = is_agent();
  return options;
}

LaunchResult ConsoleRun::run() {
  if (options_.verbose) {
    const bool only_servers = own_.at(0) >= size_ - options_.servers;
    output_.say(fmt::format("gyre run: starting {} rank{} of `{}` on {} ({} cores), rendezvous {}", options_.ranks,
                            options_.ranks == 1 ? "" : "s",
                            fmt::join(only_servers ? options_.server_command : options_.command, " "), host_name(),
                            usable_cores(), ranks_.rendezvous()));
  }
  if (earlier_logs_ > 0) {
    output_.say(fmt::format("gyre run: {} has logs of an earlier job; they are now rank-N.log.{}",
                            options_.log_dir->string(), earlier_logs_));
  }
  ranks_.start();
  while (!ranks_.finished()) {
    wait_for_events();
    handle_signals();  // First: ranks that end together with a signal to us were meant to stop, they did not fail.
    check_lifeline();
    ranks_.advance();
    serve_input();
    take_metrics();
    release_tracebacks();
    output_.flush();
    ranks_.pause_output(output_.backlogged());
    // As every program in a pipeline: nobody reads on (`gyre run … | head`), so the work is over.
    if (output_.reader_has_gone() && !ranks_.ending()) stop(SIGPIPE);
  }
  output_.end_progress();
  wait_for_decision();
  LaunchResult result = conclude();
  output_.finish(signals_.fd());
  note_missing_output(options_.environment, output_.what_is_missing());
  return result;
}

void ConsoleRun::started(int rank, pid_t process) {
  if (input_rank_ == rank) input_->started(process);
  if (intake_) intake_->started(rank, process);
  if (options_.watcher != nullptr) {
    const bool is_server = rank >= size_ - options_.servers;
    options_.watcher->started(rank, process, is_server ? "server" : options_.role, "");
  }
  if (options_.verbose) output_.say(fmt::format("gyre run: rank {} is process {}", rank, process));
}

void ConsoleRun::output(int rank, Stream stream, std::string_view bytes) {
  RankOutput& target = output_of(rank);
  const bool had_acted = target.watchdog().has_acted();
  target.add(stream, bytes, output_);
  if (std::string log = target.take_log(); !log.empty()) {
    FromAgent words;
    words.log = {.rank = rank, .bytes = std::move(log)};
    tell(words);
  }
  if (is_agent() && target.watchdog().has_acted() && !had_acted) {
    FromAgent words;
    words.watchdog_has_acted = true;
    tell(words);
  }
  if (input_rank_ == rank) input_->rank_wrote(target.has_unfinished_line());
  if (const std::string failure = target.take_log_failure(); !failure.empty()) {
    output_.say(fmt::format("gyre run: {} is incomplete from here on: {}", *log_file(rank), failure));
  }
  // While many write at once; the rest of the time it is enough that run() looks.
  if (output_.backlogged()) ranks_.pause_output(true);
}

void ConsoleRun::ended(const ExitRecord& record) {
  if (input_rank_ == record.rank) input_->close();
  if (intake_) intake_->ended(record.rank);
  ended_.insert(record.rank);
  if (!record.status.success()) failed_.insert(record.rank);
  if (options_.watcher != nullptr) options_.watcher->ended(record);
  if (!is_agent()) return;
  FromAgent words;
  words.ended = {.rank = record.rank, .status = record.status, .asked_to_end = record.asked_to_end};
  tell(words);
}

void ConsoleRun::lost(const ExitRecord& record) {
  RankOutput& output = output_of(record.rank);
  output.release(output_);
  output_.say(fmt::format("gyre run: rank {} of {} ended with {}; the others go on without it", record.rank, size_,
                          describe_exit(record.status)));
  failed_.erase(record.rank);
  if (options_.watcher != nullptr) options_.watcher->lost(record);
}

void ConsoleRun::note_for_other_hosts(const std::string& line) {
  if (!is_agent()) return;
  FromAgent words;
  words.note = line;
  tell(words);
}

void ConsoleRun::wait_for_events() {
  std::vector<pollfd> waits = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0},
                               {.fd = ranks_.fd(), .events = POLLIN, .revents = 0}};
  if (options_.lifeline_fd >= 0) waits.push_back({.fd = options_.lifeline_fd, .events = POLLIN, .revents = 0});
  const bool takes = intake_ && intake_->fd() >= 0 && !(is_agent() && output_.backlogged());
  if (takes) waits.push_back({.fd = intake_->fd(), .events = POLLIN, .revents = 0});
  if (input_) input_->add_waits(waits);
  output_.wait(waits, due_at());
}

std::optional<SteadyClock::time_point> ConsoleRun::due_at() const {
  std::optional<SteadyClock::time_point> due = input_ ? input_->due_at() : std::nullopt;
  if (const auto look = intake_ ? intake_->due_at() : std::nullopt) due = std::min(due.value_or(*look), *look);
  if (ranks_.ending() || !failed_.empty()) return due;  // The end of the job is near, and decides.
  for (const RankOutput& each : outputs_) {
    if (const auto until = each.held_until()) due = std::min(due.value_or(*until), *until);
  }
  return due;
}

void ConsoleRun::release_tracebacks() {
  if (ranks_.ending() || !failed_.empty()) return;
  const auto now = SteadyClock::now();
  for (RankOutput& each : outputs_) {
    if (const auto until = each.held_until(); until && now >= *until) each.release(output_);
  }
}

void ConsoleRun::serve_input() {
  if (!input_) return;
  const InputRelay::Happened happened = input_->advance();
  RankOutput& rank = output_of(*input_rank_);
  if (happened.asks) rank.show_prompt(output_);
  if (happened.given && input_->is_terminal()) rank.end_prompt(output_);
}

void ConsoleRun::handle_signals() {
  while (const auto signal = signals_.next()) {
    if (*signal == SIGTSTP) {
      suspend();
    } else {
      stop(*signal);
    }
  }
}

void ConsoleRun::check_lifeline() {
  if (options_.lifeline_fd < 0) return;
  pollfd lifeline{.fd = options_.lifeline_fd, .events = POLLIN, .revents = 0};
  if (::poll(&lifeline, 1, 0) <= 0) return;
  std::array<char, 4096> text;
  const ssize_t count = ::read(options_.lifeline_fd, text.data(), text.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count > 0) {
    return lifeline_lines_.add({text.data(), static_cast<std::size_t>(count)}, [this](std::string_view line, LineEnd) {
      if (const auto words = parse_to_agent(line)) obey(*words);
    });
  }
  options_.lifeline_fd = -1;
  if (!ranks_.ending()) stop(SIGTERM);
}

void ConsoleRun::obey(const ToAgent& words) {
  switch (words.word) {
    case ToAgent::Word::kRankHasEnded: return ranks_.hear(words.text + '\n');
    case ToAgent::Word::kARankHasFailed: return ranks_.expect_decision();
    case ToAgent::Word::kFirstFailure: decided_ = true; return ranks_.decide(words.number);
    case ToAgent::Word::kLost: return ranks_.lose(words.number);
    case ToAgent::Word::kStop: return stop(words.number);
    case ToAgent::Word::kKill: return ranks_.kill();
  }
}

void ConsoleRun::tell(const FromAgent& words) { output_.say(to_line(words)); }

void ConsoleRun::report(const std::string& line) {
  FromAgent words;
  words.report = line;
  tell(words);
}

void ConsoleRun::dying(bool now) {
  FromAgent words;
  words.dying = now;
  tell(words);
}

bool ConsoleRun::awaits_words() {
  const auto acted = [](const RankOutput& each) { return each.watchdog().has_acted(); };
  const auto is_silent = [this](const RankOutput& each) {
    return !each.watchdog().words() && !ended_.contains(each.rank());
  };
  return std::ranges::any_of(outputs_, acted) && std::ranges::any_of(outputs_, is_silent);
}

std::vector<WatchdogWords> ConsoleRun::watchdog_words() const {
  std::vector<WatchdogWords> all;
  for (const RankOutput& each : outputs_) {
    if (auto words = each.watchdog().words()) all.push_back(*words);
  }
  return all;
}

void ConsoleRun::wait_for_decision() {
  if (!is_agent() || failed_.empty() || decided_ || stop_signal_) return;
  FromAgent words;
  words.awaits_decision = true;
  tell(words);
  const Deadline deadline = Deadline::after(kLongestWaitForDecision);
  while (!failed_.empty() && !decided_ && !stop_signal_ && options_.lifeline_fd >= 0 && !deadline.passed()) {
    output_.flush();
    std::vector<pollfd> waits = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0},
                                 {.fd = options_.lifeline_fd, .events = POLLIN, .revents = 0}};
    output_.wait(waits, deadline.when());
    handle_signals();
    check_lifeline();
  }
}

void ConsoleRun::stop(int signal) {
  if (!ranks_.stop(signal == SIGPIPE ? SIGTERM : signal, options_.grace)) return;
  stop_signal_ = signal;
  if (options_.watcher != nullptr) options_.watcher->stopping(signal);
  if (signal == SIGINT && !is_agent()) {
    output_.say(interrupt_words(options_.grace, output_.is_terminal(Stream::kStderr)));
  }
}

void ConsoleRun::suspend() {
  ranks_.signal_all(SIGSTOP);
  output_.end_progress();
  output_.flush();
  ::raise(SIGSTOP);  // Returns when the shell continues us.
  ranks_.signal_all(SIGCONT);
}

LaunchResult ConsoleRun::conclude() {
  const RankSetResult ended = ranks_.result();
  LaunchResult result;
  for (const ExitRecord& record : ended.ranks) result.rank_exit_status.push_back(record.status);
  show_tracebacks(ended);
  if (is_agent()) {
    tell_end(ended);
    result.first_failed_rank = ended.first_failed_rank;
  }
  if (stop_signal_) {
    result.exit_code = 128 + *stop_signal_;
    if (!is_agent()) {
      output_.say(stop_words(*stop_signal_, ended.ranks.size(), ended.killed_after_grace, options_.grace));
    }
  } else if (const ExitRecord* cause = ended.first_failure(); cause != nullptr && !is_agent()) {
    result.exit_code = cause->status.shell_code();
    result.first_failed_rank = subject_of(*cause, ended).rank;
    const FailureReport report = report_on(*cause, ended);
    note_failed_rank(options_.environment, report.rank);
    output_.say(failure_block(report, options_.colour && output_.is_terminal(Stream::kStderr)));
    if (options_.watcher != nullptr) options_.watcher->failed(report.rank, failure_block(report, false));
    if (restarts_ < options_.max_restarts) {
      output_.say(fmt::format("gyre run: starting {} again, restart {} of {}",
                              options_.ranks == 1 ? "the rank" : fmt::format("all {} ranks", options_.ranks),
                              restarts_ + 1, options_.max_restarts));
    }
  }
  return result;
}

void ConsoleRun::tell_end(const RankSetResult& result) {
  FromAgent words;
  words.done = {.ended_because = result.ended_because,
                .killed_after_grace = result.killed_after_grace,
                .watchdogs = watchdog_words(),
                .report = {}};
  const ExitRecord* cause = result.first_failure();
  if (cause != nullptr && !stop_signal_) words.done->report = report_on(*cause, result);
  tell(words);
}

void ConsoleRun::show_tracebacks(const RankSetResult& result) {
  for (RankOutput& each : outputs_) {
    const auto& error = each.traceback().latest();
    const bool innocent = result.first_failed_rank && *result.first_failed_rank != each.rank();
    if (innocent || (result.stopped_by == SIGINT && error && follows_from_interrupt(*error))) {
      each.fold(output_, folder_);
    } else {
      each.release(output_);
    }
  }
}

const ExitRecord& ConsoleRun::subject_of(const ExitRecord& cause, const RankSetResult& result) const {
  // NOLINTNEXTLINE(bugprone-return-const-ref-from-parameter): the caller keeps the record, which is one of `result`.
  if (is_agent() || !was_ended_by_watchdog(cause.rank, cause.status, watchdog_words())) return cause;
  const auto verdict = judge_watchdogs(watchdog_words(), size_);
  const bool is_ours = verdict && verdict->rank && own_.contains(*verdict->rank);
  return is_ours ? result.ranks[own_.index_of(*verdict->rank)] : cause;
}

FailureReport ConsoleRun::report_on(const ExitRecord& cause, const RankSetResult& result) const {
  const ExitRecord& subject = subject_of(cause, result);
  FailureReport report;
  report.rank = subject.rank;
  report.ranks = size_;
  report.host = host_name();
  report.pid = subject.process;
  report.status = cause.status;
  report.after = std::chrono::duration_cast<std::chrono::milliseconds>(cause.ended_at - result.started);
  const RankOutput& output = outputs_[own_.index_of(subject.rank)];
  report.last_lines = output.tail().lines();
  const bool raised = cause.status.signal == 0 || cause.status.signal == SIGABRT;
  if (raised && output.traceback().lines_since() <= kMostLastWords) report.error = output.traceback().latest();
  report.child_failed_to_import = output.traceback().child_failed_to_import();
  if (report.error) report.error->place = place_seen_from(folder_, report.error->place);
  report.log_file = log_file(subject.rank);
  report.is_services_job = options_.metrics_for_service;
  report.ended_because = result.ended_because;
  std::erase(report.ended_because, subject.rank);
  if (!is_agent() && was_ended_by_watchdog(cause.rank, cause.status, watchdog_words())) {
    report.watchdogs = watchdog_words();
  }
  for (const RankOutput& each : outputs_) {
    if (!each.watchdog().stall().empty()) report.stall = each.watchdog().stall();
  }
  report.they_left_a_group = !result.left_before.empty();
  for (const ExitRecord& record : result.ranks) {
    const bool had_left = std::ranges::find(result.left_before, record.rank) != result.left_before.end();
    const bool had_ended = record.status.success() && record.ended_at < cause.ended_at;
    if (had_left || had_ended) report.finished_before.push_back(record.rank);
  }
  const auto kills = out_of_memory_kills();
  if (kills && out_of_memory_kills_before_) report.out_of_memory_kills = *kills - *out_of_memory_kills_before_;
  if (kills_in_own_cgroup() > cgroup_kills_before_) report.memory_limit_bytes = own_memory_limit();
  return report;
}

std::optional<std::string> ConsoleRun::log_file(int rank) const {
  if (!options_.log_dir || !options_.names_logs) return std::nullopt;
  return (*options_.log_dir / log_name(rank)).string();
}

}  // namespace gyre::launch
