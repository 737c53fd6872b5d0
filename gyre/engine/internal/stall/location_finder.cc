#include "gyre/engine/internal/stall/location_finder.h"

#include <exception>
#include <utility>

#include "gyre/base/thread.h"

namespace gyre::engine::internal {

LocationFinder::LocationFinder(std::function<std::string()> find) : find_(std::move(find)) {}

void LocationFinder::look(std::uint32_t question) {
  {
    const MutexLock lock(state_->mutex);
    state_->question = question;
    if (std::exchange(state_->looking, true)) return;
  }
  const auto look_now = [state = state_, find = find_] {
    std::string program;
    try {
      if (find) program = find();
    } catch (const std::exception& error) {
      program = std::string("an unknown place: ") + error.what();
    }
    const MutexLock lock(state->mutex);
    state->program = std::move(program);
    state->looking = false;
    state->found_one.notify();
  };
  if (find_) {
    start_thread("the look-up of this rank's position", look_now).detach();
  } else {
    look_now();
  }
}

std::optional<LocationFinder::Found> LocationFinder::take() {
  const MutexLock lock(state_->mutex);
  if (!state_->program) return std::nullopt;
  state_->found_one.clear();
  Found found{state_->question, std::move(*state_->program)};
  state_->program.reset();
  return found;
}

}  // namespace gyre::engine::internal
