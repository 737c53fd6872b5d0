#include "gyre/engine/internal/open/waiting_operations.h"

#include "gyre/base/check.h"

namespace gyre::engine::internal {

WaitingOperation& WaitingOperations::find_or_add(const std::string& name, int ranks, SteadyClock::time_point now) {
  const auto [entry, is_new] = by_name_.try_emplace(name);
  WaitingOperation& operation = entry->second;
  if (is_new) {
    operation.signatures.resize(static_cast<std::size_t>(ranks));
    operation.since = now;
    operation.arrival = ++arrivals_;
    by_arrival_.emplace(operation.arrival, &*entry);
  }
  return operation;
}

const WaitingOperation* WaitingOperations::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

WaitingOperation WaitingOperations::take(const std::string& name) {
  const auto found = by_name_.find(name);
  GYRE_CHECK(found != by_name_.end());
  WaitingOperation operation = std::move(found->second);
  by_arrival_.erase(operation.arrival);
  by_name_.erase(found);
  return operation;
}

std::optional<SteadyClock::time_point> WaitingOperations::oldest() const {
  if (by_arrival_.empty()) return std::nullopt;
  return by_arrival_.begin()->second->second.since;
}

}  // namespace gyre::engine::internal
