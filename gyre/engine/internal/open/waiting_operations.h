#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/engine/internal/open/order.h"
#include "gyre/engine/request.h"

namespace gyre::engine::internal {

/// An operation that some ranks have announced and others have not.
struct WaitingOperation {
  Signatures signatures;
  int count = 0;
  bool transient = false;
  RowCounts rows{};              // Of all of them together.
  bool by_contributors = false;  // Set when ready: whether averages leave out those who have joined.
  SteadyClock::time_point since;
  std::uint64_t arrival = 0;  // Order of the first announcement.
};

/// All of them, by name and in the order of their first announcement. A rank that is ahead of the others may have tens
/// of thousands here, and whoever holds them is asked something with every message: only for_each() looks at them all.
/// Not thread-safe.
class WaitingOperations {
 public:
  /// The one of this name, a new one if there is none.
  WaitingOperation& find_or_add(const std::string& name, int ranks, SteadyClock::time_point now);
  /// Null if there is none.
  const WaitingOperation* find(const std::string& name) const;
  /// It waits no longer. Precondition: it is there.
  WaitingOperation take(const std::string& name);

  /// When the oldest was first announced.
  std::optional<SteadyClock::time_point> oldest() const;

  /// Calls visit(name, operation), oldest first. `visit` must not add or take any.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [arrival, entry] : by_arrival_) {
      ++visits_;
      visit(entry->first, entry->second);
    }
  }
  /// Calls of a `visit` so far: the work that must not be done with every message.
  std::uint64_t visits() const { return visits_; }

 private:
  using ByName = std::unordered_map<std::string, WaitingOperation>;

  ByName by_name_;
  std::map<std::uint64_t, const ByName::value_type*> by_arrival_;  // The map's entries stay where they are.
  std::uint64_t arrivals_ = 0;
  mutable std::uint64_t visits_ = 0;
};

}  // namespace gyre::engine::internal
