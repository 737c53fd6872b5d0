#include "gyre/launch/internal/hosts/hosts_run.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/launch/internal/hosts/description.h"
#include "gyre/launch/internal/log_folder.h"
#include "gyre/launch/internal/report.h"
#include "gyre/launch/internal/service_notes.h"

namespace gyre::launch {

namespace {

/// A host that has not answered by then cannot be reached; ssh itself gives up a little earlier. Whoever named a dead
/// host learns of it within 10 s.
constexpr std::chrono::seconds kReachTime{7};
/// From the end of the job until an agent that is still there is killed, beyond the ranks' own time to stop.
constexpr std::chrono::seconds kFarewellTime{8};
constexpr std::chrono::milliseconds kKillFarewellTime{1000};
/// How long after the loss of a host the failure that explains it may still be reported.
constexpr std::chrono::milliseconds kSettleTime{400};

ExitRecord record_of(const FromAgent::Ended& ended) {
  ExitRecord record;
  record.rank = ended.rank;
  record.status = ended.status;
  record.asked_to_end = ended.asked_to_end;
  return record;
}

int size_of(const std::vector<Host>& hosts) {
  int size = 0;
  for (const Host& host : hosts) size += host.slots + static_cast<int>(host.servers.size());
  return size;
}

}  // namespace

HostsRun::HostsRun(const HostsOptions& options)
    : options_(options),
      size_(size_of(options.hosts)),
      output_(options.job.stdout_fd, options.job.stderr_fd, 1, false),
      metrics_(make_job_metrics(options.job, size_)),
      watchers_(options.job.watcher, metrics_ ? &*metrics_ : nullptr) {
  for (const Host& host : options.hosts) members_.push_back(std::make_unique<Member>(host));
  statuses_.resize(static_cast<std::size_t>(size_));
}

LaunchResult HostsRun::run() {
  if (reach()) {
    describe_job();
    watch();
  }
  end_all();
  LaunchResult result = conclude();
  if (metrics_) metrics_->finish(result.exit_code);
  output_.finish(signals_.fd());
  note_missing_output(options_.environment, output_.what_is_missing());
  return result;
}

/// A reader who has stopped reading makes the ranks wait, not us grow.
bool HostsRun::paused() const { return output_.backlogged() && !hurry_; }

bool HostsRun::reach() {
  for (const auto& member : members_) {
    const Host& host = member->agent.host();
    member->agent.start(agent_command(options_, host), options_.environment);
  }
  const auto until = SteadyClock::now() + kReachTime;
  const auto is_open = [](const auto& member) { return !member->agent.ports() && member->agent.failure().empty(); };
  while (std::ranges::any_of(members_, is_open) && !stop_signal_) {
    kill_at_ = until;
    wait_for_events();
    handle_signals();
    advance_agents();
    if (SteadyClock::now() < until) continue;
    for (const auto& member : members_) {
      if (is_open(member)) member->agent.fail(fmt::format("no answer within {} s", kReachTime.count()));
    }
  }
  kill_at_.reset();
  std::string reasons;
  int unreachable = 0;
  for (const auto& member : members_) {
    const std::string& failure = member->agent.failure();
    if (failure.empty()) continue;
    reasons += fmt::format("{}{}: {}", ++unreachable > 1 ? "; " : "", member->agent.host().name,
                           explain_unreachable(options_, member->agent.host(), failure));
  }
  if (unreachable > 0 && !stop_signal_) {
    const std::string sentence = fmt::format("cannot start a rank on host{} {}", unreachable > 1 ? "s" : "", reasons);
    say_failure(sentence);
    note_start_failure(options_.environment, sentence);
  } else if (!stop_signal_) {
    note_start_failure(options_.environment, "");
  }
  return unreachable == 0 && !stop_signal_;
}

void HostsRun::describe_job() {
  std::vector<RemoteAgent::Ports> ports;
  for (const auto& member : members_) ports.push_back(*member->agent.ports());
  const JobPlace place = make_job_place(options_, ports);
  for (std::size_t node = 0; node < members_.size(); ++node) {
    members_[node]->agent.tell(describe(options_, place, node));
  }
  described_ = true;
  const std::vector<std::vector<int>> ranks = rank_numbers(options_.hosts);
  for (std::size_t node = 0; node < ranks.size(); ++node) {
    const std::string& name = options_.hosts[node].name;
    for (const int rank : ranks[node]) {
      const bool is_server = rank >= size_ - options_.job.servers;
      // Their hosts know the processes.
      watchers_.started(rank, 0, is_server ? "server" : options_.job.role, name.substr(name.rfind('@') + 1));
    }
  }
}

/// Of the job, which no rank has caused.
void HostsRun::say_failure(const std::string& sentence) {
  output_.say("gyre run: " + sentence);
  watchers_.failed(-1, sentence);
}

void HostsRun::watch() {
  while (!all_ended() && !stop_signal_ && !first_) {
    wait_for_events();
    handle_signals();
    advance_agents();
    if (!stop_signal_) judge();
    // Where ranks had failed before, that may explain it.
    if (lost_ != nullptr && (!a_rank_has_failed_ || SteadyClock::now() >= *lost_at_ + kSettleTime)) return;
  }
}

void HostsRun::wait_for_events() {
  output_.flush();
  std::vector<pollfd> waits = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
  if (!paused()) {
    for (const auto& member : members_) member->agent.add_waits(waits);
  }
  output_.wait(waits, due_at());
}

std::optional<SteadyClock::time_point> HostsRun::due_at() const {
  std::optional<SteadyClock::time_point> due = kill_at_;
  const auto add = [&due](SteadyClock::time_point when) { due = std::min(due.value_or(when), when); };
  if (!first_ && !stop_signal_ && !ending_) {
    if (const auto settles = failures_.settles_at()) add(*settles);
    if (lost_at_) add(*lost_at_ + kSettleTime);
  }
  return due;
}

void HostsRun::advance_agents() {
  for (const auto& member : members_) {
    if (paused()) return;
    const bool was_there = !member->agent.status();
    member->agent.advance([&](Stream stream, std::string_view line) { hear(*member, stream, line); });
    if (was_there && member->agent.status() && described_ && !member->done && lost_ == nullptr) {
      lost_at_ = SteadyClock::now();
      lost_ = member.get();
    }
  }
  for (const auto& [member, ended] : std::exchange(failed_, {})) rank_failed(*member, ended);
  if (output_.reader_has_gone() && !stop_signal_) {
    stop_signal_ = SIGPIPE;  // As every program in a pipeline: nobody reads on, so the work is over.
    tell_all({ToAgent::Word::kStop, SIGTERM, {}});
  }
}

void HostsRun::hear(Member& member, Stream stream, std::string_view line) {
  if (!described_) return;  // It has nothing to do, and says so.
  if (stream == Stream::kStderr && line.starts_with(kFromAgent)) {
    if (const auto words = parse_from_agent(line, size_)) hear(member, *words);
    return;
  }
  output_.line(stream, line);
}

void HostsRun::hear(Member& member, const FromAgent& words) {
  if (words.dying) member.dying = *words.dying;
  if (words.awaits_decision) member.awaits_decision = true;
  if (words.watchdog_has_acted) failures_.words_are_awaited(true);
  if (words.done) member.done = words.done;
  if (const auto report = parse_report(words.report, size_)) {
    if (report->word == RankReport::Word::kMayBeLost) {
      may_be_lost_.insert(report->rank);
    } else {
      // The group does not go on: what its ranks end with now is a failure, whoever it is.
      if (report->word == RankReport::Word::kFailed) may_be_lost_.clear();
      failures_.hear(*report);
    }
  }
  if (metrics_ && !words.metrics.empty()) keep_metrics(member, words.metrics);
  if (words.log && options_.log_copies) keep_log(*words.log);
  if (words.ended) rank_ended(member, *words.ended);
  if (words.note.empty()) return;
  for (const auto& other : members_) {
    if (other.get() != &member) other->agent.tell({ToAgent::Word::kRankHasEnded, 0, words.note});
  }
}

void HostsRun::keep_log(const FromAgent::Log& log) {
  try {
    // Not kept open: a job may have more ranks than a process may have files.
    write_all(open_log(*options_.log_copies / log_name(log.rank)).get(), as_bytes(log.bytes), "cannot write");
  } catch (const Error& error) {
    if (std::exchange(logs_are_incomplete_, true)) return;
    output_.say(fmt::format("gyre run: logs on the page are incomplete from here on: {}", error.what()));
  }
}

void HostsRun::keep_metrics(Member& member, const std::string& blocks) {
  try {
    member.metrics.take(as_bytes(blocks), [this](std::span<const metrics::Sample> samples) { metrics_->add(samples); });
  } catch (const Error& error) {
    output_.say(fmt::format("gyre run: host {}: {}", member.agent.host().name, error.what()));
  }
  if (const std::string told = metrics_->take_words(); !told.empty()) output_.say(told);
}

void HostsRun::rank_ended(Member& member, const FromAgent::Ended& ended) {
  statuses_[static_cast<std::size_t>(ended.rank)] = ended.status;
  watchers_.ended(record_of(ended));
  if (ended.status.success()) {
    failures_.ended_well(ended.rank);
    finished_.emplace_back(ended.rank, SteadyClock::now());
  } else if (!ended.asked_to_end) {
    failed_.emplace_back(&member, ended);
  }
}

void HostsRun::rank_failed(Member& member, const FromAgent::Ended& ended) {
  if (first_ || stop_signal_) return;
  // That was said before it failed, but perhaps on a host that was read later.
  if (may_be_lost_.contains(ended.rank)) {
    watchers_.lost(record_of(ended));
    return member.agent.tell({ToAgent::Word::kLost, ended.rank, {}});
  }
  failures_.add({ended.rank, ended.status, SteadyClock::now()});
  if (!std::exchange(a_rank_has_failed_, true)) tell_all({ToAgent::Word::kARankHasFailed, 0, {}});
}

void HostsRun::judge() {
  failures_.somebody_is_dying(std::ranges::any_of(members_, [](const auto& member) { return member->dying; }));
  if (const auto failure = failures_.final_at(SteadyClock::now())) return decide(*failure);
  // Nothing more can come.
  const bool over = std::ranges::all_of(
      members_, [](const auto& member) { return member->agent.status() || member->done || member->awaits_decision; });
  if (const auto best = failures_.best(); over && best) decide(*best);
}

void HostsRun::decide(const RankFailure& failure) {
  first_ = failure;
  tell_all({ToAgent::Word::kFirstFailure, failure.rank, {}});
}

void HostsRun::handle_signals() {
  while (const auto signal = signals_.next()) {
    if (*signal == SIGTSTP) {
      ::raise(SIGSTOP);
    } else if (stop_signal_ || first_) {
      tell_all({ToAgent::Word::kKill, 0, {}});
      kill_at_ = SteadyClock::now() + kKillFarewellTime;
    } else {
      stop_signal_ = signal;
      watchers_.stopping(*signal);
      if (*signal == SIGINT && described_) {
        output_.say(interrupt_words(options_.job.grace, output_.is_terminal(Stream::kStderr)));
      }
      tell_all({ToAgent::Word::kStop, *signal, {}});
    }
  }
}

void HostsRun::tell_all(const ToAgent& words) {
  if (!described_) return;
  for (const auto& member : members_) member->agent.tell(words);
}

bool HostsRun::all_ended() const {
  return std::ranges::all_of(members_, [](const auto& member) { return member->agent.status().has_value(); });
}

void HostsRun::end_all() {
  ending_ = true;
  const bool told = described_ && (stop_signal_ || first_);
  if (!kill_at_) kill_at_ = SteadyClock::now() + options_.job.grace + kFarewellTime;
  for (const auto& member : members_) {
    // An agent that knows why it is ending says so first; the end of its stdin would stop its ranks for another reason.
    if (!told) member->agent.let_go();
    if (!member->agent.failure().empty()) member->agent.kill();
  }
  while (std::ranges::any_of(members_, [](const auto& member) { return member->agent.is_there(); })) {
    wait_for_events();
    handle_signals();
    advance_agents();
    if (SteadyClock::now() < *kill_at_) continue;
    hurry_ = true;
    for (const auto& member : members_) member->agent.kill();
    kill_at_ = SteadyClock::now() + kKillFarewellTime;
  }
}

std::optional<FailureReport> HostsRun::report() const {
  std::optional<FailureReport> report;
  for (const auto& member : members_) {
    if (member->done && member->done->report) report = member->done->report;
  }
  if (!report) return std::nullopt;
  for (const auto& member : members_) {
    if (!member->done) continue;
    const auto& because = member->done->ended_because;
    report->ended_because.insert(report->ended_because.end(), because.begin(), because.end());
  }
  std::ranges::sort(report->ended_because);
  std::vector<WatchdogWords> watchdogs;
  for (const auto& member : members_) {
    if (member->done) std::ranges::copy(member->done->watchdogs, std::back_inserter(watchdogs));
  }
  if (was_ended_by_watchdog(report->rank, report->status, watchdogs)) report->watchdogs = std::move(watchdogs);
  const std::vector<int> left = failures_.left_before(first_->rank);
  for (const auto& [rank, when] : finished_) {
    const bool had_left = std::ranges::find(left, rank) != left.end();
    if (had_left || when < first_->when) report->finished_before.push_back(rank);
    if (had_left) report->they_left_a_group = true;
  }
  std::ranges::sort(report->finished_before);
  report->is_services_job = options_.job.metrics_for_service;
  return report;
}

LaunchResult HostsRun::conclude() {
  LaunchResult result;
  for (const auto& status : statuses_) result.rank_exit_status.push_back(status.value_or(ExitStatus{}));
  const bool reached =
      std::ranges::all_of(members_, [](const auto& member) { return member->agent.failure().empty(); });
  if (stop_signal_) {
    result.exit_code = 128 + *stop_signal_;
    std::vector<int> killed;
    for (const auto& member : members_) {
      if (member->done) std::ranges::copy(member->done->killed_after_grace, std::back_inserter(killed));
    }
    output_.say(described_ ? stop_words(*stop_signal_, static_cast<std::size_t>(size_), killed, options_.job.grace)
                           : fmt::format("gyre run: stopped by {}; no rank was started", signal_name(*stop_signal_)));
  } else if (!reached) {
    result.exit_code = kUnreachableExitCode;
  } else if (first_) {
    result.exit_code = first_->status.shell_code();
    result.first_failed_rank = first_->rank;
    note_failed_rank(options_.environment, first_->rank);
    const auto told = report();
    std::string words = fmt::format("gyre run: rank {} of {} failed first: {}; its host was lost", first_->rank, size_,
                                    describe_exit(first_->status));
    output_.say(told ? failure_block(*told, options_.job.colour && output_.is_terminal(Stream::kStderr)) : words);
    if (told) words = failure_block(*told, false);
    watchers_.failed(first_->rank, words);
  } else if (lost_ != nullptr) {
    const std::string& name = lost_->agent.host().name;
    const ExitStatus status = *lost_->agent.status();
    result.exit_code = status.code;
    if (status.signal != 0 || status.code == 0 || status.code == kUnreachableExitCode) {
      result.exit_code = kUnreachableExitCode;
      say_failure(fmt::format("lost the connection to host {}; its ranks end by themselves", name));
    } else if (members_.size() > 1) {
      say_failure(fmt::format("host {} could not start its ranks; those on the other hosts were ended", name));
    }
  }
  return result;
}

}  // namespace gyre::launch
