#include "gyre/engine/internal/stall/process_waits.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "gyre/engine/internal/stall/strangers.h"

namespace gyre::engine::internal {

namespace {

/// Asks the kernel, not /proc, which may be absent, or show the numbers of another process namespace.
bool has_ended(pid_t thread) { return ::syscall(SYS_tgkill, ::getpid(), thread, 0) != 0 && errno == ESRCH; }

/// Of the thread that has ended a plan's last step: not if it has ended, or is one of a pool (TensorFlow's) that did so
/// for another thread and sleeps, if the caller `sees_pools`. Then any thread of the rank may bring the next step.
bool may_bring_by_itself(const ThreadIdentity& thread, bool sees_pools) {
  if (thread.id == std::thread::id()) return false;
  if (thread.number == 0) return true;
  return !has_ended(thread.number) && !(sees_pools && is_idle_in_pool(thread.number));
}

/// Whether a thread that has used the engine does nothing before another thread of its rank gives it work.
bool only_serves(pid_t number, const std::vector<ProgramThread>* program_threads) {
  return program_threads != nullptr && std::ranges::any_of(*program_threads, [&](const ProgramThread& one) {
           return one.number == number && one.serves_library;
         });
}

}  // namespace

void ProcessWaits::add(Source* source) {
  const MutexLock lock(mutex_);
  sources_.push_back(source);
}

void ProcessWaits::remove(Source* source) {
  const MutexLock lock(mutex_);
  std::erase(sources_, source);
}

void ProcessWaits::note_this_thread() {
  const auto own = std::this_thread::get_id();
  const MutexLock lock(mutex_);
  if (principals_.contains(own)) return;
  const pid_t number = ::gettid();
  const auto known = std::ranges::find(users_, own, [](const auto& user) { return user.first; });
  if (known != users_.end()) {
    known->second = number;  // A new thread may have got the identity of one that has ended.
    return;
  }
  forget_ended_threads();
  users_.emplace_back(own, number);
}

std::shared_ptr<void> ProcessWaits::act_for(const ThreadIdentity& principal) {
  const auto own = std::this_thread::get_id();
  {
    const MutexLock lock(mutex_);
    principals_[own] = principal;
  }
  return {nullptr, [this, own](void*) {
            const MutexLock lock(mutex_);
            principals_.erase(own);
          }};
}

ThreadIdentity ProcessWaits::principal_of(const ThreadIdentity& thread) const {
  const auto found = principals_.find(thread.id);
  return found == principals_.end() ? thread : found->second;
}

void ProcessWaits::forget_ended_threads() {
  std::erase_if(users_, [](const auto& user) { return has_ended(user.second); });
}

RankState ProcessWaits::look(const Source* asking, const std::vector<ProgramThread>* program_threads) {
  const MutexLock lock(mutex_);
  forget_ended_threads();
  RankState state;
  std::vector<std::thread::id> threads;
  std::vector<pid_t> known;
  for (const auto& [thread, number] : users_) {
    known.push_back(number);
    // One that waits nevertheless is in a report below.
    if (!only_serves(number, program_threads)) threads.push_back(thread);
  }
  state.threads.resize(threads.size());
  const auto number_of = [&](std::thread::id thread) {
    return static_cast<std::size_t>(std::ranges::find(threads, thread) - threads.begin());
  };
  std::vector<std::pair<ThreadIdentity, OwedStep>> owed;
  for (Source* source : sources_) {
    Source::Report report = source->report();
    for (auto& [thread, awaited] : report.waits) {
      const ThreadIdentity principal = principal_of(thread);
      known.push_back(principal.number);
      const std::size_t number = number_of(principal.id);
      if (number == threads.size()) {
        threads.push_back(principal.id);
        state.threads.emplace_back();
      }
      state.threads[number].waits.push_back(std::move(awaited));
    }
    for (const auto& [thread, step] : report.owed) owed.push_back({thread, {report.state.engine, step}});
    if (source != asking) state.engines.push_back(std::move(report.state));
  }
  for (auto& [thread, step] : owed) {
    const std::size_t number = number_of(thread.id);
    if (number == threads.size() && may_bring_by_itself(thread, program_threads != nullptr)) {
      threads.push_back(thread.id);  // It waits for nothing that is known here.
      state.threads.emplace_back();
    }
    if (number < threads.size()) step.thread = static_cast<int>(number);
    state.owed.push_back(step);
  }
  // Last, and under the mutex: a thread that has begun to use Gyre meanwhile waits in note_this_thread() and is found.
  if (program_threads != nullptr) state.strangers = find_strangers(known, *program_threads);
  return state;
}

void ProcessWaits::keep_report(const DeadlockReport& report) {
  const MutexLock lock(mutex_);
  for (Source* source : sources_) source->keep_report(report);
}

void ProcessWaits::fail_with_report(const Source* failed) {
  const MutexLock lock(mutex_);
  for (Source* source : sources_) {
    if (source != failed) source->fail_with_report();
  }
}

}  // namespace gyre::engine::internal
