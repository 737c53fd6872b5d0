#include "gyre/jobs/drivers/internal/engine_queue.h"

#include <poll.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"

namespace gyre::jobs::drivers {

namespace {

using State = Holding::State;

constexpr std::chrono::seconds kForgetPatience{10};  // With node programs that are leaving.
constexpr std::chrono::seconds kCancelAgain{5};

}  // namespace

EngineQueue::EngineQueue(std::shared_ptr<NodeEngine> engine, Pauses pauses, Logger logger)
    : engine_(std::move(engine)), pauses_(pauses), logger_(std::move(logger)) {
  thread_ = start_thread("engine queue", [this] { run(); });
}

EngineQueue::~EngineQueue() {
  stopping_ = true;
  wake_.notify();
  thread_.join();
}

void EngineQueue::submit(QueuedRequest request) {
  const MutexLock lock(mutex_);
  new_.push_back(std::move(request));
  wake_.notify();
}

void EngineQueue::cancel(const std::string& attempt) {
  const MutexLock lock(mutex_);
  wishes_[attempt] = Wish::kCancel;
  wake_.notify();
}

void EngineQueue::forget(const std::string& attempt) {
  const MutexLock lock(mutex_);
  wishes_[attempt] = Wish::kForget;
  wake_.notify();
}

std::vector<Sighting> EngineQueue::take() {
  const MutexLock lock(mutex_);
  seen_notifier_.clear();
  return std::exchange(seen_, {});
}

void EngineQueue::tell(Sighting sighting) {
  const MutexLock lock(mutex_);
  seen_.push_back(std::move(sighting));
  seen_notifier_.notify();
}

void EngineQueue::run() {
  while (!stopping_) {
    wake_.clear();
    try {
      turn();
      unreachable_ = false;
      for (auto& [attempt, entry] : entries_) entry.outage_told = false;
    } catch (const Error& error) {
      tell_unreachable(error.what());
      next_list_ = SteadyClock::now() + std::max(pauses_.poll, pauses_.outage);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_list_ - SteadyClock::now()).count();
    pollfd wait{.fd = wake_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, wants_list() ? static_cast<int>(std::max<std::int64_t>(left, 0)) : -1);
  }
}

void EngineQueue::tell_unreachable(const std::string& what) {
  if (!std::exchange(unreachable_, true)) logger_->warn("{} cannot be asked: {}", engine_->title(), what);
  for (auto& [attempt, entry] : entries_) {
    if (!entry.over && !std::exchange(entry.outage_told, true)) tell({Sighting::Kind::kUnreachable, attempt, what});
  }
}

void EngineQueue::take_wishes() {
  for (QueuedRequest& request : std::exchange(new_, {})) {
    if (entries_.contains(request.attempt())) continue;
    entries_[request.attempt()].job = std::move(request);
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

/// Some request's fate is known to the engine alone, or it looks after nodes that nobody has.
bool EngineQueue::wants_list() const {
  const auto is_open = [](const auto& each) {
    return !each.second.over && (!each.second.id.empty() || each.second.job.may_exist);
  };
  return std::ranges::any_of(entries_, is_open) || !engine_->node_problems().empty();
}

void EngineQueue::turn() {
  {
    const MutexLock lock(mutex_);
    take_wishes();
  }
  if (wants_list() && SteadyClock::now() >= next_list_) {
    const std::vector<Holding> list = engine_->list();
    next_list_ = SteadyClock::now() + pauses_.poll;
    for (auto& [attempt, entry] : entries_) {
      if (!entry.over && entry.id.empty() && entry.job.may_exist) look_for(entry, list);
      if (!entry.over && !entry.id.empty()) look_at(entry, list);
    }
  }
  bool asked = false;
  for (auto& [attempt, entry] : entries_) {
    if (entry.over || entry.job.may_exist) continue;
    if (!entry.id.empty()) {
      release_unwanted(entry);
    } else if (entry.wish != Wish::kRun) {
      end(entry, Sighting::End::kCanceled, "CANCELLED");
    } else if (std::exchange(asked, true)) {
      wake_.notify();  // Wishes and a list come between two requests.
    } else {
      ask_now(entry);
    }
  }
  std::erase_if(entries_, [&](const auto& each) {
    const bool gone = each.second.over && each.second.forget;
    if (gone) tell({Sighting::Kind::kGone, each.first, ""});
    return gone;
  });
}

void EngineQueue::ask_now(Entry& entry) {
  try {
    entry.id = engine_->ask(entry.job.request);
    tell({Sighting::Kind::kSubmitted, entry.job.attempt(), entry.id});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument && error.code() != ErrorCode::kNotFound) {
      entry.job.may_exist = true;  // It may have heard, and only its answer is lost.
      throw;
    }
    entry.over = true;
    tell({Sighting::Kind::kRefused, entry.job.attempt(), error.what()});
  }
}

/// By its name, if need be: the service before us may have died before it had heard the id, or we have not heard it.
void EngineQueue::look_for(Entry& entry, const std::vector<Holding>& list) {
  entry.id = entry.job.id;
  for (const Holding& holding : list) {
    if (entry.id.empty() && holding.name == entry.job.request.name && !holding.is_over()) entry.id = holding.id;
  }
  entry.job.may_exist = false;
  if (entry.id.empty()) return;  // It was never asked for; it is now, or never.
  tell({Sighting::Kind::kSubmitted, entry.job.attempt(), entry.id});
}

/// One that was asked for twice, around the death of a service. The engine runs only one of them at a time: that one is
/// kept, or the first of the list, so that two services, of which one has just died, do not end each other's.
void EngineQueue::end_doubles(Entry& entry, const std::vector<Holding>& list) {
  const auto is_live = [&](const Holding& each) { return each.name == entry.job.request.name && !each.is_over(); };
  const auto runs = [&](const Holding& each) { return is_live(each) && each.state == State::kRuns; };
  const auto own = std::ranges::find(list, entry.id, &Holding::id);
  auto kept = std::ranges::find_if(list, runs);
  if (kept == list.end()) kept = std::ranges::find_if(list, is_live);
  const bool is_over = own != list.end() && own->is_over();
  if (kept != list.end() && !is_over && kept->id != entry.id) {
    entry.id = kept->id;
    tell({Sighting::Kind::kSubmitted, entry.job.attempt(), entry.id});
  }
  for (const Holding& each : list) {
    if (is_live(each) && each.id != entry.id) engine_->release(each.id);
  }
}

void EngineQueue::look_at(Entry& entry, const std::vector<Holding>& list) {
  end_doubles(entry, list);
  const auto found = std::ranges::find(list, entry.id, &Holding::id);
  if (found == list.end()) return end(entry, Sighting::End::kUnknown, "UNKNOWN");
  if (found->is_over()) {
    const bool lost = found->state == State::kLost;
    return end(entry, lost ? Sighting::End::kLost : Sighting::End::kCanceled, found->text, found->last_words);
  }
  tell_state(entry, *found);
}

/// Whatever the last list has said: the engine is fine with one that is over.
void EngineQueue::release_unwanted(Entry& entry) {
  const auto now = SteadyClock::now();
  if (entry.wish == Wish::kRun || now < entry.cancel_after || now < entry.cancelled + kCancelAgain) return;
  entry.cancelled = now;
  engine_->release(entry.id);
}

void EngineQueue::tell_state(Entry& entry, const Holding& holding) {
  const std::string reason = holding.state == State::kWaits ? holding.text : "";
  const bool told_already = entry.told == holding.state && entry.told_reason == reason;
  entry.told = holding.state;
  entry.told_reason = reason;
  if (told_already) return;
  if (!reason.empty()) tell({Sighting::Kind::kWaits, entry.job.attempt(), reason});
  if (holding.state == State::kRuns) tell({Sighting::Kind::kRuns, entry.job.attempt(), holding.text});
}

void EngineQueue::end(Entry& entry, Sighting::End how, const std::string& text, const std::string& last_words) {
  entry.over = true;
  tell({Sighting::Kind::kOver, entry.job.attempt(), text, how, last_words});
}

}  // namespace gyre::jobs::drivers
