#include "gyre/launch/internal/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/launch/internal/dying.h"
#include "gyre/launch/internal/host.h"
#include "gyre/launch/internal/rank_environment.h"
#include "gyre/launch/internal/sweep.h"

namespace gyre::launch {

namespace {

constexpr int kEventsAtOnce = 64;

/// How long the last output of ended ranks is collected; only a process that escaped us could still write.
constexpr std::chrono::seconds kDrainTime{5};
constexpr std::chrono::milliseconds kSweepTime{300};

constexpr std::array<Stream, 2> kStreams = {Stream::kStdout, Stream::kStderr};

std::string log_name(int rank) { return fmt::format("rank-{}.log", rank); }

/// After a restart the logs go on.
std::vector<UniqueFd> open_logs(const LaunchOptions& options, int first_rank, bool keep) {
  std::vector<UniqueFd> logs(static_cast<std::size_t>(options.ranks));
  if (!options.log_dir) return logs;
  std::error_code failure;
  std::filesystem::create_directories(*options.log_dir, failure);
  if (failure) {
    throw system_error(fmt::format("cannot create the log directory {}", options.log_dir->string()), failure.value());
  }
  for (int rank = 0; rank < options.ranks; ++rank) {
    const std::filesystem::path path = *options.log_dir / log_name(first_rank + rank);
    UniqueFd& log = logs[static_cast<std::size_t>(rank)];
    log = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | (keep ? 0 : O_TRUNC) | O_APPEND | O_CLOEXEC, 0666));
    if (!log) throw system_error(fmt::format("cannot write the log file {}", path.string()), errno);
  }
  return logs;
}

UniqueFd make_epoll() {
  UniqueFd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd) throw system_error("cannot watch the ranks", errno);
  return fd;
}

void watch(const UniqueFd& epoll, int fd, std::uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw system_error("cannot watch a rank", errno);
}

/// Calls `handle(tag)` for what is ready now, in the order in which it became ready.
template <typename Handler>
void for_ready(const UniqueFd& epoll, const Handler& handle) {
  std::array<epoll_event, kEventsAtOnce> events;
  const int count = ::epoll_wait(epoll.get(), events.data(), kEventsAtOnce, 0);
  for (int i = 0; i < count; ++i) handle(events[static_cast<std::size_t>(i)].data.u64);
}

}  // namespace

Supervisor::Supervisor(const LaunchOptions& options, int restarts)
    : options_(options),
      restarts_(restarts),
      first_rank_(options.part ? options.part->first_rank : 0),
      size_(options.part ? options.part->size : options.ranks),
      logs_(open_logs(options, first_rank_, restarts > 0)),
      identity_(options.part ? join_job_identity(*options.part) : make_job_identity(options.ranks)),
      marker_(make_job_marker()),
      output_(options.stdout_fd, options.stderr_fd, size_, options.colour),
      guardian_(marker_),
      ends_epoll_(make_epoll()),
      outputs_epoll_(make_epoll()),
      started_(SteadyClock::now()),
      out_of_memory_kills_before_(out_of_memory_kills()) {}

LaunchResult Supervisor::run() {
  start_ranks();
  while (running_ > 0) {
    wait_for_events();
    handle_signals();  // First: ranks that end together with a signal to us were meant to stop, they did not fail.
    handle_ended_ranks();
    check_lifeline();
    if (!output_.backlogged()) read_outputs();
    act_on_time();
    output_.flush();
    check_output();
  }
  kill_leftovers();
  drain_output();
  LaunchResult result = conclude();
  wait_until_written();
  return result;
}

JobEnvironment Supervisor::job_environment() {
  if (options_.master_port == 0) {
    reserved_port_ = reserve_port();
    options_.master_port = reserved_port_.port;
  }
  return {
      .inherited = options_.environment,
      .ranks = options_.ranks,
      .first_rank = first_rank_,
      .size = size_,
      .node = options_.part ? options_.part->node : 0,
      .nodes = options_.part ? options_.part->nodes : 1,
      .master_address = options_.master_address,
      .master_port = options_.master_port,
      .run_id = options_.run_id,
      .role = options_.role,
      .restarts = restarts_,
      .max_restarts = options_.max_restarts,
      .marker = marker_,
      .cores = usable_cores(),
      .rendezvous = identity_.rendezvous,
      .rendezvous_fd = identity_.rendezvous_fd.get(),
      .key_fd = identity_.key_fd.get(),
      .ended_fd = ended_ranks_.descriptor(),
      .verdict_fd = identity_.verdict_fd.get(),
      .timeline =
          options_.timeline ? std::optional(std::filesystem::absolute(*options_.timeline).string()) : std::nullopt,
      .log_level = options_.log_level,
  };
}

void Supervisor::start_ranks() {
  const JobEnvironment job = job_environment();
  if (options_.verbose) {
    output_.say(fmt::format("gyre run: starting {} rank{} of `{}` on {} ({} cores), rendezvous {}", options_.ranks,
                            options_.ranks == 1 ? "" : "s", fmt::join(options_.command, " "), host_name(), job.cores,
                            job.rendezvous));
  }
  for (int rank = 0; rank < options_.ranks; ++rank) {
    SpawnOptions spawn;
    spawn.argv = options_.command;
    spawn.environment = rank_environment(job, rank);
    if (identity_.key_fd) spawn.inherited_fds.push_back(identity_.key_fd.get());
    spawn.inherited_fds.push_back(ended_ranks_.descriptor());
    spawn.inherited_fds.push_back(identity_.verdict_fd.get());
    if (first_rank_ + rank == 0 && identity_.rendezvous_fd) {
      spawn.inherited_fds.push_back(identity_.rendezvous_fd.get());
    }
    spawn.own_process_group = true;
    spawn.parent_death_signal = SIGKILL;
    const auto index = static_cast<std::size_t>(rank);
    ranks_.push_back(
        std::make_unique<RankProcess>(first_rank_ + rank, std::move(spawn), std::move(logs_[index]),
                                      index < options_.shown.size() ? options_.shown[index] : kBothStreams));
    watch_rank(*ranks_.back());
    // Rank 0's copy is the only one from now on: when it dies, connecting fails at once instead of waiting.
    if (rank == 0) identity_.rendezvous_fd.reset();
  }
  identity_.key_fd.reset();
  identity_.verdict_fd.reset();
}

void Supervisor::watch_rank(RankProcess& rank) {
  guardian_.watch(rank.process().pid());
  const auto number = static_cast<std::uint64_t>(rank.rank() - first_rank_);
  watch(ends_epoll_, rank.process().pidfd(), number);
  for (const Stream stream : kStreams) {
    watch(outputs_epoll_, rank.output_fd(stream), number * kStreams.size() + static_cast<std::uint64_t>(stream));
  }
  ++running_;
  if (options_.verbose) output_.say(fmt::format("gyre run: rank {} is process {}", rank.rank(), rank.process().pid()));
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> waits = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0},
                               {.fd = ends_epoll_.get(), .events = POLLIN, .revents = 0}};
  if (!output_.backlogged()) waits.push_back({.fd = outputs_epoll_.get(), .events = POLLIN, .revents = 0});
  for (const Stream stream : kStreams) {
    if (output_.pending(stream)) waits.push_back({.fd = output_.fd(stream), .events = POLLOUT, .revents = 0});
  }
  if (options_.lifeline_fd >= 0) waits.push_back({.fd = options_.lifeline_fd, .events = POLLIN, .revents = 0});
  ::poll(waits.data(), waits.size(), wait_timeout_ms());
}

int Supervisor::wait_timeout_ms() const {
  std::optional<SteadyClock::time_point> next = kill_at_;
  if (!ending_ && !stop_signal_) {
    if (const auto settles = failures_.settles_at()) next = next ? std::min(*next, *settles) : *settles;
  }
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - SteadyClock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1'000'000));
}

void Supervisor::handle_signals() {
  while (const auto signal = signals_.next()) {
    if (*signal == SIGTSTP) {
      suspend();
    } else {
      stop(*signal);
    }
  }
}

void Supervisor::handle_ended_ranks() {
  for_ready(ends_epoll_, [this](std::uint64_t tag) {
    RankProcess& rank = *ranks_[tag];
    const auto status = rank.process().exit_status();
    if (!status) return;
    const auto now = SteadyClock::now();
    ::epoll_ctl(ends_epoll_.get(), EPOLL_CTL_DEL, rank.process().pidfd(), nullptr);
    rank.ended(*status, now);
    --running_;
    const bool told_to_end = ending_ || stop_signal_.has_value();
    if (status->success()) failures_.ended_well(rank.rank());
    if (status->success() && !told_to_end) note_end(rank);
    if (status->success() || told_to_end) return;
    hear_accounts();  // First: they were written before any rank failed because of another.
    failures_.add({rank.rank(), *status, now});
  });
}

void Supervisor::note_end(const RankProcess& rank) {
  const std::string line = ended_ranks_.note(rank.rank(), rank.process().pid());
  if (options_.lifeline_fd >= 0) output_.say(fmt::format("{}{}", kNoteForOtherHosts, line));
}

void Supervisor::hear_accounts() {
  std::array<char, 256> text;
  for (;;) {
    const ssize_t count = ::read(identity_.verdicts.get(), text.data(), text.size());
    if (count <= 0) return;
    account_lines_.add({text.data(), static_cast<std::size_t>(count)}, [this](std::string_view line, LineEnd) {
      if (const auto account = parse_account(line, size_)) failures_.hear(*account);
    });
  }
}

void Supervisor::read_outputs() {
  for_ready(outputs_epoll_, [this](std::uint64_t tag) {
    RankProcess& rank = *ranks_[tag / kStreams.size()];
    // One buffer each in turn, so that a talkative rank does not drown the others. A closed pipe leaves the epoll.
    rank.read_output(kStreams[tag % kStreams.size()], output_);
    const std::string failure = rank.take_log_failure();
    if (failure.empty()) return;
    output_.say(fmt::format("gyre run: {} is incomplete from here on: {}", *log_file(rank.rank()), failure));
  });
}

void Supervisor::check_output() {
  const int failure = output_.stdout_failure();
  if (failure == 0 || stdout_reported_) return;
  stdout_reported_ = true;
  if (failure == EPIPE) {
    // As every program in a pipeline: nobody reads on (`gyre run … | head`), so the work is over.
    if (!stop_signal_ && !ending_) stop(SIGPIPE);
  } else {
    output_.say(
        system_error("gyre run: the ranks' output is lost from here on: cannot write to stdout", failure).what());
  }
}

void Supervisor::check_lifeline() {
  if (options_.lifeline_fd < 0) return;
  pollfd lifeline{.fd = options_.lifeline_fd, .events = POLLIN, .revents = 0};
  if (::poll(&lifeline, 1, 0) <= 0) return;
  std::array<char, 4096> notes;
  const ssize_t count = ::read(options_.lifeline_fd, notes.data(), notes.size());
  if (count > 0) return ended_ranks_.hear({notes.data(), static_cast<std::size_t>(count)});
  options_.lifeline_fd = -1;
  if (!stop_signal_ && !ending_) stop(SIGTERM);
}

void Supervisor::act_on_time() {
  const auto now = SteadyClock::now();
  if (!ending_ && !stop_signal_) {
    // Only a failure that would be final makes it worth the look.
    failures_.somebody_is_dying(false);
    if (failures_.final_at(now)) failures_.somebody_is_dying(a_rank_is_dying());
    if (const auto cause = failures_.final_at(now)) end_other_ranks(*cause);
  }
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    if (stop_signal_) killed_after_grace_ = running_ranks();
    signal_all(SIGKILL);
  }
}

void Supervisor::end_other_ranks(const RankFailure&) {
  ending_ = true;
  ended_because_ = running_ranks();
  signal_all(SIGTERM);
  kill_at_ = SteadyClock::now() + kTerminationGrace;
}

void Supervisor::stop(int signal) {
  if (stop_signal_ || ending_) {
    kill_at_.reset();
    signal_all(SIGKILL);
    return;
  }
  stop_signal_ = signal;
  signal_all(signal == SIGPIPE ? SIGTERM : signal);
  kill_at_ = SteadyClock::now() + options_.grace;
  if (signal == SIGINT) {
    output_.say(
        fmt::format("{}gyre run: Ctrl-C: told the ranks to stop; they are killed in {:g} s, or at once by another "
                    "Ctrl-C",
                    output_.is_terminal(Stream::kStderr) ? "\n" : "",  // After the "^C" of the terminal.
                    std::chrono::duration<double>(options_.grace).count()));
  }
}

void Supervisor::suspend() {
  signal_all(SIGSTOP);
  output_.end_progress();
  output_.flush();
  ::raise(SIGSTOP);  // Returns when the shell continues us.
  signal_all(SIGCONT);
}

void Supervisor::signal_all(int signal) const {
  // Also to the groups of ranks that have ended: what they have started may still be there.
  for (const auto& rank : ranks_) rank->process().signal(signal);
}

bool Supervisor::a_rank_is_dying() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return !rank->status() && is_dying(rank->process().pid()); });
}

std::vector<int> Supervisor::running_ranks() const {
  std::vector<int> running;
  for (const auto& rank : ranks_) {
    if (rank->running()) running.push_back(rank->rank());
  }
  return running;
}

void Supervisor::kill_leftovers() {
  signal_all(SIGKILL);
  kill_marked_processes(marker_, Deadline::after(kSweepTime));
  guardian_.stand_down();
}

void Supervisor::drain_output() {
  const Deadline deadline = Deadline::after(kDrainTime);
  bool more = true;
  while (more && !deadline.passed()) {
    more = false;
    for (const auto& rank : ranks_) {
      for (const Stream stream : kStreams) more = rank->read_output(stream, output_) || more;
    }
    if (output_.backlogged()) wait_until_written();
  }
  for (const auto& rank : ranks_) {
    rank->finish_output(output_);
    rank->process().reap();
  }
  output_.end_progress();
}

void Supervisor::wait_until_written() {
  for (;;) {
    output_.flush();
    std::vector<pollfd> waits = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
    for (const Stream stream : kStreams) {
      if (output_.pending(stream)) waits.push_back({.fd = output_.fd(stream), .events = POLLOUT, .revents = 0});
    }
    if (waits.size() == 1) return;
    ::poll(waits.data(), waits.size(), -1);
    // As long as the reader likes (a pager), unless somebody wants us gone.
    if (waits.front().revents != 0) return;
  }
}

LaunchResult Supervisor::conclude() {
  LaunchResult result;
  for (const auto& rank : ranks_) result.rank_exit_status.push_back(*rank->status());
  if (stop_signal_) {
    result.exit_code = 128 + *stop_signal_;
    if (!killed_after_grace_.empty()) {
      output_.say(fmt::format("gyre run: rank{} {} had not stopped after {:g} s and {} killed",
                              killed_after_grace_.size() == 1 ? "" : "s", describe_ranks(killed_after_grace_),
                              std::chrono::duration<double>(options_.grace).count(),
                              killed_after_grace_.size() == 1 ? "was" : "were"));
    }
    if (*stop_signal_ != SIGPIPE) {
      output_.say(fmt::format("gyre run: stopped by {}; {} ended", signal_name(*stop_signal_),
                              ranks_.size() == 1 ? "the rank has" : fmt::format("all {} ranks have", ranks_.size())));
    }
  } else if (const auto& cause = failures_.best()) {
    result.exit_code = cause->status.shell_code();
    result.first_failed_rank = cause->rank;
    output_.say(failure_block(report_on(*cause), options_.colour && output_.is_terminal(Stream::kStderr)));
    if (restarts_ < options_.max_restarts) {
      output_.say(fmt::format("gyre run: starting {} again, restart {} of {}",
                              options_.ranks == 1 ? "the rank" : fmt::format("all {} ranks", options_.ranks),
                              restarts_ + 1, options_.max_restarts));
    }
  }
  return result;
}

FailureReport Supervisor::report_on(const RankFailure& cause) const {
  const RankProcess& failed = *ranks_[static_cast<std::size_t>(cause.rank - first_rank_)];
  FailureReport report;
  report.rank = cause.rank;
  report.ranks = size_;
  report.host = host_name();
  report.pid = failed.process().pid();
  report.status = cause.status;
  report.after = std::chrono::duration_cast<std::chrono::milliseconds>(cause.when - started_);
  report.last_lines = failed.tail().lines();
  report.log_file = log_file(cause.rank);
  report.ended_because = ended_because_;
  for (const auto& rank : ranks_) {
    if (rank->status()->success() && rank->ended_at() < cause.when) report.finished_before.push_back(rank->rank());
  }
  const auto kills = out_of_memory_kills();
  if (kills && out_of_memory_kills_before_) report.out_of_memory_kills = *kills - *out_of_memory_kills_before_;
  return report;
}

std::optional<std::string> Supervisor::log_file(int rank) const {
  if (!options_.log_dir) return std::nullopt;
  return (*options_.log_dir / log_name(rank)).string();
}

}  // namespace gyre::launch
