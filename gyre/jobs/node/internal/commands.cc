#include "gyre/jobs/node/internal/commands.h"

#include <algorithm>
#include <utility>

namespace gyre::jobs::node::internal {

using orders::NodeFacts;

void Commands::run(const std::vector<NodeFacts>& facts) {
  const MutexLock lock(mutex_);
  if (!run_) run_ = facts;
  notifier_.notify();
}

void Commands::finish() {
  const MutexLock lock(mutex_);
  finish_ = true;
  notifier_.notify();
}

void Commands::stop(StopCommand command) {
  const MutexLock lock(mutex_);
  if (!stop_) stop_ = command;
  stop_->grace = std::min(stop_->grace, command.grace);
  notifier_.notify();
}

void Commands::start(CommandStart command) {
  const MutexLock lock(mutex_);
  starts_.push_back(std::move(command));
  notifier_.notify();
}

std::vector<CommandStart> Commands::take_starts() {
  const MutexLock lock(mutex_);
  return std::exchange(starts_, {});
}

void Commands::leave() {
  const MutexLock lock(mutex_);
  leave_ = true;
  notifier_.notify();
}

std::optional<std::vector<NodeFacts>> Commands::running() const {
  const MutexLock lock(mutex_);
  return run_;
}

bool Commands::finishing() const {
  const MutexLock lock(mutex_);
  return finish_;
}

std::optional<StopCommand> Commands::stopping() const {
  const MutexLock lock(mutex_);
  return stop_;
}

bool Commands::leaving() const {
  const MutexLock lock(mutex_);
  return leave_;
}

}  // namespace gyre::jobs::node::internal
