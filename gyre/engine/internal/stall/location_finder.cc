#include "gyre/engine/internal/stall/location_finder.h"

#include <exception>
#include <utility>

#include "gyre/base/thread.h"

namespace gyre::engine::internal {

LocationFinder::LocationFinder(std::function<std::string()> find,
                               std::function<std::vector<ProgramThread>()> find_threads)
    : find_(std::move(find)), find_threads_(std::move(find_threads)) {}

void LocationFinder::look(std::uint32_t question) {
  {
    const MutexLock lock(state_->mutex);
    state_->question = question;
    if (std::exchange(state_->looking, true)) return;
  }
  const auto look_now = [state = state_, find = find_, find_threads = find_threads_] {
    Found found;
    try {
      if (find) found.program = find();
      if (find_threads) found.threads = find_threads();
    } catch (const std::exception& error) {
      found.program = std::string("an unknown place: ") + error.what();
    }
    const MutexLock lock(state->mutex);
    state->found = std::move(found);
    state->looking = false;
    state->found_one.notify();
  };
  if (find_ || find_threads_) {
    start_thread("the look-up of this rank's position", look_now).detach();
  } else {
    look_now();
  }
}

std::optional<LocationFinder::Found> LocationFinder::take() {
  const MutexLock lock(state_->mutex);
  if (!state_->found) return std::nullopt;
  state_->found_one.clear();
  std::optional<Found> found = std::exchange(state_->found, std::nullopt);
  found->question = state_->question;
  return found;
}

}  // namespace gyre::engine::internal
