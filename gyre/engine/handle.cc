#include "gyre/engine/handle.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "gyre/base/check.h"

namespace gyre::engine {

struct Handle::State {
  Mutex mutex;
  ConditionVariable changed;
  bool done GYRE_GUARDED_BY(mutex) = false;
  std::optional<Error> failure GYRE_GUARDED_BY(mutex);
  Result result GYRE_GUARDED_BY(mutex);
  std::vector<std::thread::id> waiting GYRE_GUARDED_BY(mutex);
};

Handle::Handle() : state_(std::make_shared<State>()) {}

bool Handle::done() const {
  const MutexLock lock(state_->mutex);
  return state_->done;
}

Handle::Waiting::Waiting(const Handle& handle) : state_(handle.state_) {
  const MutexLock lock(state_->mutex);
  state_->waiting.push_back(std::this_thread::get_id());
}

Handle::Waiting::~Waiting() {
  const MutexLock lock(state_->mutex);
  state_->waiting.erase(std::ranges::find(state_->waiting, std::this_thread::get_id()));
}

std::vector<std::thread::id> Handle::waiting_threads() const {
  const MutexLock lock(state_->mutex);
  return state_->waiting;
}

void Handle::wait() const {
  std::optional<Waiting> waiting;
  if (!done()) waiting.emplace(*this);
  const MutexLock lock(state_->mutex);
  while (!state_->done) state_->changed.wait(state_->mutex);
  if (state_->failure) throw Error(*state_->failure);
}

bool Handle::wait_for(std::chrono::milliseconds duration) const {
  const auto until = SteadyClock::now() + duration;
  const MutexLock lock(state_->mutex);
  while (!state_->done) {
    if (!state_->changed.wait_until(state_->mutex, until)) break;
  }
  if (state_->failure) throw Error(*state_->failure);
  return state_->done;
}

Result Handle::take_result() const {
  const MutexLock lock(state_->mutex);
  GYRE_CHECK(state_->done);
  return std::move(state_->result);
}

void Handle::complete(Result result) const {
  {
    const MutexLock lock(state_->mutex);
    GYRE_CHECK(!state_->done);
    state_->result = std::move(result);
    state_->done = true;
  }
  state_->changed.notify_all();
}

void Handle::fail(const Error& failure) const {
  {
    const MutexLock lock(state_->mutex);
    GYRE_CHECK(!state_->done);
    state_->failure = failure;
    state_->done = true;
  }
  state_->changed.notify_all();
}

}  // namespace gyre::engine
