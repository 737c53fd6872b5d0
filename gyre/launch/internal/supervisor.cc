#include "gyre/launch/internal/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/cores.h"
#include "gyre/base/error.h"
#include "gyre/launch/internal/dying.h"
#include "gyre/launch/sweep.h"

namespace gyre::launch {

namespace {

constexpr int kEventsAtOnce = 64;

/// How long the last output of ended ranks is collected; only a process that escaped us could still write.
constexpr std::chrono::seconds kDrainTime{5};
constexpr std::chrono::milliseconds kSweepTime{300};
/// From look to look at ranks that may be dying, for somebody else's decision.
constexpr std::chrono::milliseconds kLookTime{20};

constexpr std::array<Stream, kStreams> kBothStreams = {Stream::kStdout, Stream::kStderr};

UniqueFd make_epoll() {
  UniqueFd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd) throw system_error("cannot watch the ranks", errno);
  return fd;
}

UniqueFd make_timer() {
  UniqueFd fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!fd) throw system_error("cannot watch the time", errno);
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

void check_inherited(const RankSpec& rank) {
  for (const auto& [variable, descriptor] : rank.inherited) {
    if (!variable.empty() && variable.find('=') == std::string::npos && ::fcntl(descriptor, F_GETFD) >= 0) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("a rank cannot inherit descriptor {} as '{}': it is not open, or that is not a variable's name",
                    descriptor, variable));
  }
}

/// Everything that is wrong with the options is an error here, before anything exists.
RankSetOptions checked(RankSetOptions options) {
  const std::size_t ranks = options.ranks.size();
  if (ranks < 1 || ranks > kMostRanksPerHost) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} ranks were asked for; 1 to {} can run on one host", ranks, kMostRanksPerHost));
  }
  for (const RankSpec& rank : options.ranks) {
    if (rank.command.empty()) throw Error(ErrorCode::kInvalidArgument, "no command to run");
    check_inherited(rank);
  }
  return options;
}

}  // namespace

Supervisor::Supervisor(RankSetOptions options, RankEvents& events)
    : options_(checked(std::move(options))),
      events_(events),
      own_(options_.part, static_cast<int>(options_.ranks.size())),
      size_(own_.job_size()),
      identity_(options_.part ? join_job_identity(*options_.part) : make_job_identity(size_)),
      marker_(make_job_marker()),
      guardian_(marker_),
      ends_epoll_(make_epoll()),
      outputs_epoll_(make_epoll()),
      timer_(make_timer()),
      everything_(make_epoll()),
      started_(SteadyClock::now()),
      records_(options_.ranks.size()) {
  for (const UniqueFd* fd : {&ends_epoll_, &outputs_epoll_, &timer_}) watch(everything_, fd->get(), 0);
  if (options_.decided_elsewhere) watch(everything_, identity_.failures.get(), 0);
}

JobEnvironment Supervisor::job_environment() {
  if (options_.master_port == 0) {
    reserved_port_ = reserve_port();
    options_.master_port = reserved_port_.port;
  }
  return {
      .inherited = {},
      .ranks = own_.all(),
      .size = size_,
      .servers = options_.servers,
      .node = options_.part ? options_.part->node : 0,
      .nodes = options_.part ? options_.part->nodes : 1,
      .master_address = options_.master_address,
      .master_port = options_.master_port,
      .run_id = options_.run_id,
      .role = {},
      .index_in_role = {},
      .role_size = {},
      .restarts = options_.restarts,
      .max_restarts = options_.max_restarts,
      .marker = marker_,
      .cores = usable_cores(),
      .rendezvous = identity_.rendezvous,
      .rendezvous_fd = identity_.rendezvous_fd.get(),
      .key_fd = identity_.key_fd.get(),
      .ended_fd = ended_ranks_.descriptor(),
      .failure_fd = identity_.failure_fd.get(),
      .timeline =
          options_.timeline ? std::optional(std::filesystem::absolute(*options_.timeline).string()) : std::nullopt,
      .log_level = options_.log_level,
  };
}

SpawnOptions Supervisor::spawn_options(JobEnvironment& job, int index) const {
  const RankSpec& rank = options_.ranks[static_cast<std::size_t>(index)];
  job.inherited = rank.environment;
  job.role = rank.role;
  job.index_in_role = rank.index;
  job.role_size = rank.role_size;
  SpawnOptions spawn;
  spawn.argv = rank.command;
  spawn.environment = rank_environment(job, index);
  spawn.folder = rank.folder;
  spawn.user = rank.user;
  spawn.cgroups = rank.cgroups;
  spawn.stdin_fd = rank.stdin_fd;
  spawn.stdout_fd = rank.stdout_fd;
  spawn.stderr_fd = rank.stderr_fd;
  for (const auto& [variable, descriptor] : rank.inherited) {
    set_variable(spawn.environment, variable, std::to_string(descriptor));
    spawn.inherited_fds.push_back(descriptor);
  }
  if (identity_.key_fd) spawn.inherited_fds.push_back(identity_.key_fd.get());
  spawn.inherited_fds.push_back(ended_ranks_.descriptor());
  spawn.inherited_fds.push_back(identity_.failure_fd.get());
  if (job.ranks[static_cast<std::size_t>(index)] == rendezvous_rank() && identity_.rendezvous_fd) {
    spawn.inherited_fds.push_back(identity_.rendezvous_fd.get());
  }
  spawn.own_process_group = true;
  spawn.parent_death_signal = SIGKILL;
  return spawn;
}

void Supervisor::start() {
  GYRE_CHECK(stage_ == Stage::kNew);
  JobEnvironment job = job_environment();
  for (int index = 0; index < static_cast<int>(options_.ranks.size()); ++index) {
    const int rank = job.ranks[static_cast<std::size_t>(index)];
    ranks_.push_back(std::make_unique<RankProcess>(rank, spawn_options(job, index)));
    watch_rank(*ranks_.back());
    // That rank's copy is the only one from now on: when it dies, connecting fails at once instead of waiting.
    if (rank == rendezvous_rank()) identity_.rendezvous_fd.reset();
  }
  identity_.key_fd.reset();
  identity_.failure_fd.reset();
  stage_ = Stage::kRunning;
}

void Supervisor::watch_rank(RankProcess& rank) {
  guardian_.watch(rank.process().pid());
  const auto number = static_cast<std::uint64_t>(own_.index_of(rank.rank()));
  watch(ends_epoll_, rank.process().pidfd(), number);
  for (const Stream stream : kBothStreams) {
    if (rank.output_fd(stream) < 0) continue;
    watch(outputs_epoll_, rank.output_fd(stream), number * kStreams + static_cast<std::uint64_t>(stream));
  }
  ++running_;
  events_.started(rank.rank(), rank.process().pid());
}

void Supervisor::advance() {
  std::uint64_t expirations = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(timer_.get(), &expirations, sizeof expirations);
  if (stage_ == Stage::kRunning) {
    if (options_.decided_elsewhere) read_reports();
    handle_ended_ranks();
    if (!paused_) read_outputs();
    act_on_time();
    if (running_ == 0) kill_leftovers();
  }
  if (stage_ == Stage::kDraining) drain_output();
  arm_timer();
}

std::optional<SteadyClock::time_point> Supervisor::due_at() const {
  if (stage_ == Stage::kDraining) return paused_ ? std::nullopt : std::optional(SteadyClock::now());
  if (stage_ != Stage::kRunning) return std::nullopt;
  std::optional<SteadyClock::time_point> next = kill_at_;
  if (!ending() && options_.decided_elsewhere) {
    if (look_for_dying_) next = next ? std::min(*next, *look_for_dying_) : *look_for_dying_;
  } else if (!ending()) {
    if (const auto settles = failures_.settles_at()) next = next ? std::min(*next, *settles) : *settles;
  }
  return next;
}

void Supervisor::arm_timer() const {
  itimerspec when{};
  if (const auto due = due_at()) {
    const auto left = std::chrono::ceil<std::chrono::nanoseconds>(*due - SteadyClock::now()).count();
    const auto nanoseconds = std::max<long long>(left, 1);  // 0 would disarm it.
    constexpr long long kPerSecond = 1'000'000'000;
    when.it_value.tv_sec = static_cast<time_t>(nanoseconds / kPerSecond);
    when.it_value.tv_nsec = static_cast<long>(nanoseconds % kPerSecond);
  }
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
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
    const bool asked_to_end = ending();
    records_[tag] = record_of(rank, asked_to_end);
    if (status->success()) failures_.ended_well(rank.rank());
    if (status->success() && !asked_to_end) {
      events_.note_for_other_hosts(ended_ranks_.note(rank.rank(), rank.process().pid()));
    }
    const bool failed = !status->success() && !asked_to_end;
    if (failed) read_reports();  // First: they were written before any rank failed because of another.
    events_.ended(*records_[tag]);
    if (!failed) return;
    if (!options_.decided_elsewhere && may_be_lost_.contains(rank.rank())) return lose(rank.rank());
    failures_.add({rank.rank(), *status, now});
  });
}

void Supervisor::lose(int rank) {
  if (!own_.contains(rank) || std::ranges::find(lost_, rank) != lost_.end()) return;
  const std::size_t index = own_.index_of(rank);
  if (!records_[index]) return;
  // What it has started may still hold its connections, which have to end for the others to notice.
  if (stage_ == Stage::kRunning) ranks_[index]->process().signal(SIGKILL);
  lost_.push_back(rank);
  events_.lost(*records_[index]);
}

ExitRecord Supervisor::record_of(const RankProcess& rank, bool asked_to_end) const {
  const RankSpec& spec = options_.ranks[own_.index_of(rank.rank())];
  return {.rank = rank.rank(),
          .role = spec.role,
          .index = spec.index.value_or(rank.rank()),
          .process = rank.process().pid(),
          .status = *rank.status(),
          .ended_at = rank.ended_at(),
          .asked_to_end = asked_to_end};
}

void Supervisor::read_reports() {
  std::array<char, 256> text;
  for (;;) {
    const ssize_t count = ::read(identity_.failures.get(), text.data(), text.size());
    // No rank holds its end any more.
    if (count == 0 && options_.decided_elsewhere) {
      ::epoll_ctl(everything_.get(), EPOLL_CTL_DEL, identity_.failures.get(), nullptr);
    }
    if (count <= 0) return;
    report_lines_.add({text.data(), static_cast<std::size_t>(count)}, [this](std::string_view line, LineEnd) {
      const auto report = parse_report(line, size_);
      if (!report) return;
      if (report->word == RankReport::Word::kMayBeLost) {
        may_be_lost_.insert(report->rank);
      } else {
        // The group does not go on: what its ranks end with now is a failure, whoever it is.
        if (report->word == RankReport::Word::kFailed) may_be_lost_.clear();
        failures_.hear(*report);
      }
      if (options_.decided_elsewhere) events_.report(std::string(line));
    });
  }
}

void Supervisor::read_outputs() {
  for_ready(outputs_epoll_, [this](std::uint64_t tag) {
    // One buffer each in turn, so that a talkative rank does not drown the others. A closed pipe leaves the epoll.
    ranks_[tag / kStreams]->read_output(kBothStreams[tag % kStreams], events_);
  });
}

void Supervisor::act_on_time() {
  const auto now = SteadyClock::now();
  if (!ending()) decide_or_wait(now);
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    if (stop_signal_) killed_after_grace_ = running_ranks();
    signal_all(SIGKILL);
  }
}

void Supervisor::decide_or_wait(SteadyClock::time_point now) {
  if (options_.decided_elsewhere) {
    if (!look_for_dying_ || now < *look_for_dying_) return;
    if (const bool dying = a_rank_is_dying(); dying != std::exchange(said_dying_, dying)) events_.dying(dying);
    look_for_dying_ = now + kLookTime;
    return;
  }
  // Only a failure that would be final makes it worth the look.
  failures_.somebody_is_dying(false);
  failures_.words_are_awaited(false);
  if (failures_.final_at(now)) failures_.somebody_is_dying(a_rank_is_dying());
  if (failures_.final_at(now)) failures_.words_are_awaited(events_.awaits_words());
  if (failures_.final_at(now)) end_other_ranks();
}

void Supervisor::expect_decision() {
  look_for_dying_ = SteadyClock::now();
  arm_timer();
}

void Supervisor::decide(int rank) {
  GYRE_CHECK(options_.decided_elsewhere);
  if (stop_signal_ || decided_) return;
  decided_ = rank;
  if (stage_ != Stage::kRunning) return;
  end_other_ranks();
  arm_timer();
}

void Supervisor::end_other_ranks() {
  ending_ = true;
  ended_because_ = running_ranks();
  signal_all(SIGTERM);
  kill_at_ = SteadyClock::now() + RankSet::kTerminationGrace;
}

bool Supervisor::stop(int signal, std::chrono::milliseconds grace) {
  if (ending()) {
    kill();
    return false;
  }
  stop_signal_ = signal;
  signal_all(signal);
  kill_at_ = SteadyClock::now() + grace;
  arm_timer();
  return true;
}

void Supervisor::kill() {
  if (!ending()) stop_signal_ = SIGKILL;
  kill_at_.reset();
  signal_all(SIGKILL);
}

void Supervisor::signal_all(int signal) const {
  // Also to the groups of ranks that have ended: what they have started may still be there.
  for (const auto& rank : ranks_) rank->process().signal(signal);
}

void Supervisor::pause_output(bool paused) {
  if (paused_ == paused) return;
  paused_ = paused;
  epoll_event event{};
  event.events = paused ? 0U : static_cast<std::uint32_t>(EPOLLIN);
  ::epoll_ctl(everything_.get(), EPOLL_CTL_MOD, outputs_epoll_.get(), &event);
  if (drain_until_) drain_until_ = SteadyClock::now() + kDrainTime;  // A pause is the reader's, not the ranks'.
  arm_timer();
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
  drain_until_ = SteadyClock::now() + kDrainTime;
  stage_ = Stage::kDraining;
}

void Supervisor::drain_output() {
  bool more = true;
  while (more && SteadyClock::now() < *drain_until_) {
    more = false;
    for (const auto& rank : ranks_) {
      for (const Stream stream : kBothStreams) {
        if (paused_) return;
        more = rank->read_output(stream, events_) || more;
      }
    }
  }
  for (const auto& rank : ranks_) {
    rank->finish_output(events_);
    rank->process().reap();
  }
  stage_ = Stage::kFinished;
}

RankSetResult Supervisor::result() const {
  GYRE_CHECK(finished());
  RankSetResult result;
  for (const auto& record : records_) result.ranks.push_back(*record);
  if (options_.decided_elsewhere) {
    result.first_failed_rank = decided_;
  } else if (const auto cause = failures_.best(); cause && !stop_signal_) {
    result.first_failed_rank = cause->rank;
    const std::vector<int> left = failures_.left_before(cause->rank);
    for (const ExitRecord& record : result.ranks) {
      const bool had_left = std::ranges::find(left, record.rank) != left.end();
      if (had_left && record.status.success()) result.left_before.push_back(record.rank);
    }
  }
  result.lost = lost_;
  result.ended_because = ended_because_;
  result.stopped_by = stop_signal_;
  result.killed_after_grace = killed_after_grace_;
  result.started = started_;
  return result;
}

}  // namespace gyre::launch
