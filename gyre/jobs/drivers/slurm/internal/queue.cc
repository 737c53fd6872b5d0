#include "gyre/jobs/drivers/slurm/internal/queue.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"

namespace gyre::jobs::drivers::slurm {

namespace {

constexpr std::chrono::seconds kForgetPatience{10};  // With node programs that are leaving.
constexpr std::chrono::seconds kCancelAgain{5};
constexpr std::chrono::seconds kPauseOfOutage{5};

}  // namespace

Queue::Queue(Commands commands, std::chrono::milliseconds poll, Logger logger)
    : commands_(std::move(commands)), poll_(poll), logger_(std::move(logger)) {
  thread_ = start_thread("slurm", [this] { run(); });
}

Queue::~Queue() {
  stopping_ = true;
  wake_.notify();
  thread_.join();
}

void Queue::submit(const QueuedJob& job) {
  const MutexLock lock(mutex_);
  new_.push_back(job);
  wake_.notify();
}

void Queue::cancel(const std::string& attempt) {
  const MutexLock lock(mutex_);
  wishes_[attempt] = Wish::kCancel;
  wake_.notify();
}

void Queue::forget(const std::string& attempt) {
  const MutexLock lock(mutex_);
  wishes_[attempt] = Wish::kForget;
  wake_.notify();
}

std::vector<Sighting> Queue::take() {
  const MutexLock lock(mutex_);
  seen_notifier_.clear();
  return std::exchange(seen_, {});
}

void Queue::tell(Sighting::Kind kind, const std::string& attempt, const std::string& text, const std::string& comment) {
  const MutexLock lock(mutex_);
  seen_.push_back({kind, attempt, text, comment});
  seen_notifier_.notify();
}

void Queue::run() {
  while (!stopping_) {
    wake_.clear();
    try {
      turn();
      unreachable_ = false;
      for (auto& [attempt, entry] : entries_) entry.outage_told = false;
    } catch (const Error& error) {
      tell_unreachable(error.what());
    }
    const auto pause = unreachable_ ? std::max<std::chrono::milliseconds>(poll_, kPauseOfOutage) : poll_;
    pollfd wait{.fd = wake_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, entries_.empty() ? -1 : static_cast<int>(pause.count()));
  }
}

void Queue::tell_unreachable(const std::string& what) {
  if (!std::exchange(unreachable_, true)) logger_->warn("Slurm cannot be asked: {}", what);
  for (auto& [attempt, entry] : entries_) {
    if (!entry.over && !std::exchange(entry.outage_told, true)) tell(Sighting::Kind::kUnreachable, attempt, what);
  }
}

void Queue::take_wishes() {
  for (const QueuedJob& job : std::exchange(new_, {})) {
    if (entries_.contains(job.attempt)) continue;
    entries_[job.attempt].job = job;
  }
  for (const auto& [attempt, wish] : std::exchange(wishes_, {})) {
    const auto found = entries_.find(attempt);
    if (found == entries_.end()) continue;
    Entry& entry = found->second;
    if (wish == Wish::kForget) entry.forget = true;
    if (entry.wish == Wish::kCancel) continue;
    entry.wish = wish;
    entry.cancel_after = SteadyClock::now() + (wish == Wish::kForget ? kForgetPatience : std::chrono::seconds(0));
  }
}

void Queue::turn() {
  {
    const MutexLock lock(mutex_);
    take_wishes();
  }
  const bool ask = std::ranges::any_of(entries_, [](const auto& each) {
    return !each.second.over && (!each.second.id.empty() || each.second.job.may_exist);
  });
  const std::vector<ListedJob> list = ask ? commands_.list() : std::vector<ListedJob>();
  for (auto& [attempt, entry] : entries_) {
    if (entry.over) continue;
    if (!entry.id.empty()) {
      look_at(entry, list, SteadyClock::now());
    } else if (entry.job.may_exist) {
      look_for(entry, list);
    } else if (entry.wish != Wish::kRun) {
      end(entry, "CANCELLED");
    } else {
      submit_now(entry);
    }
  }
  std::erase_if(entries_, [&](const auto& each) {
    const bool gone = each.second.over && each.second.forget;
    if (gone) tell(Sighting::Kind::kGone, each.first, "");
    return gone;
  });
}

void Queue::submit_now(Entry& entry) {
  try {
    entry.id = commands_.submit(entry.job.arguments);
    tell(Sighting::Kind::kSubmitted, entry.job.attempt, entry.id);
    wake_.notify();  // It may run already.
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument && error.code() != ErrorCode::kNotFound) throw;
    entry.over = true;
    tell(Sighting::Kind::kRefused, entry.job.attempt, error.what());
  }
}

/// By its name, if need be: the service before us may have died before it had heard the id.
void Queue::look_for(Entry& entry, const std::vector<ListedJob>& list) {
  entry.id = entry.job.id;
  for (const ListedJob& job : list) {
    if (entry.id.empty() && job.name == entry.job.name && !is_over(job.state)) entry.id = job.id;
  }
  entry.job.may_exist = false;
  if (entry.id.empty()) return wake_.notify();  // It was never submitted; it is now, or never.
  tell(Sighting::Kind::kSubmitted, entry.job.attempt, entry.id);
  look_at(entry, list, SteadyClock::now());
}

/// One that was submitted twice, around the death of a service. Slurm runs only one of them at a time.
void Queue::end_doubles(Entry& entry, const std::vector<ListedJob>& list) {
  const auto is_live = [&](const ListedJob& job) { return job.name == entry.job.name && !is_over(job.state); };
  const auto runs = [&](const ListedJob& job) { return is_live(job) && job.state == "RUNNING"; };
  const auto own = std::ranges::find(list, entry.id, &ListedJob::id);
  const auto running = std::ranges::find_if(list, runs);
  if (running != list.end() && (own == list.end() || !runs(*own))) {
    entry.id = running->id;
    tell(Sighting::Kind::kSubmitted, entry.job.attempt, entry.id);
  }
  for (const ListedJob& job : list) {
    if (is_live(job) && job.id != entry.id) commands_.cancel(job.id);
  }
}

void Queue::look_at(Entry& entry, const std::vector<ListedJob>& list, Time now) {
  end_doubles(entry, list);
  const auto found = std::ranges::find(list, entry.id, &ListedJob::id);
  const std::string state = found == list.end() ? "UNKNOWN" : found->state;
  if (found == list.end()) return end(entry, state);
  if (is_over(state)) return end(entry, state, found->comment);
  const bool waits = state == "PENDING";
  const std::string told = waits ? found->reason : state;
  const bool told_already = std::exchange(entry.told, told) == told;
  if (!told_already && waits && found->reason != "None") {
    tell(Sighting::Kind::kWaits, entry.job.attempt, found->reason);
  }
  if (!told_already && state == "RUNNING") tell(Sighting::Kind::kRuns, entry.job.attempt, found->nodes);
  if (entry.wish == Wish::kRun || now < entry.cancel_after || now < entry.cancelled + kCancelAgain) return;
  entry.cancelled = now;
  commands_.cancel(entry.id);
  wake_.notify();
}

void Queue::end(Entry& entry, const std::string& state, const std::string& comment) {
  entry.over = true;
  tell(Sighting::Kind::kOver, entry.job.attempt, state, comment);
}

}  // namespace gyre::jobs::drivers::slurm
