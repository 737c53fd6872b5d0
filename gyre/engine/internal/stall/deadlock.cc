#include "gyre/engine/internal/stall/deadlock.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>

namespace gyre::engine::internal {

namespace {

/// Who has to bring something: one thread of a rank, or any of them.
struct Provider {
  int rank;
  int thread;
};

class Search {
 public:
  Search(const std::vector<std::optional<RankState>>& states, std::uint64_t engine,
         const std::vector<IncompleteOperation>& incomplete, Assumption assumption)
      : states_(states), engine_(engine), assumption_(assumption) {
    for (const IncompleteOperation& operation : incomplete) incomplete_.emplace(operation.name, &operation);
    for (const auto& state : states_) {
      stuck_.emplace_back();
      if (!state) continue;
      for (const ThreadState& thread : state->threads) stuck_.back().push_back(!thread.waits.empty());
    }
    while (free_some()) {
    }
  }

  std::optional<CycleOfWaits> cycle() const {
    const auto first = std::ranges::find_if(
        stuck_, [](const std::vector<bool>& threads) { return std::ranges::find(threads, true) != threads.end(); });
    if (first == stuck_.end()) return std::nullopt;
    std::vector<Provider> path;
    const int rank = static_cast<int>(first - stuck_.begin());
    Provider at{rank, first_stuck_thread(rank)};
    const auto same = [&](const Provider& other) { return other.rank == at.rank && other.thread == at.thread; };
    while (std::ranges::none_of(path, same)) {
      path.push_back(at);
      at = next(at);
    }
    path.erase(path.begin(), std::ranges::find_if(path, same));
    return describe(path);
  }

 private:
  const Awaited& awaited_at(const Provider& at) const {
    return states_[index(at.rank)]->threads[index(at.thread)].waits.front();
  }
  static std::size_t index(int number) { return static_cast<std::size_t>(number); }
  int first_stuck_thread(int rank) const {
    const auto& threads = stuck_[index(rank)];
    return static_cast<int>(std::ranges::find(threads, true) - threads.begin());
  }

  /// What is complete needs nobody.
  std::vector<Provider> providers(const Awaited& awaited) const {
    std::vector<Provider> found;
    if (!awaited.step && awaited.engine == engine_) {
      const auto operation = incomplete_.find(awaited.operation);
      if (operation == incomplete_.end() || operation->second->serial != awaited.serial) return found;
      for (const int rank : operation->second->missing_ranks) found.push_back({rank, OwedStep::kAnyThread});
      return found;
    }
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      if (!states_[rank]) continue;
      if (!awaited.step && lacks(*states_[rank], awaited)) {
        found.push_back({static_cast<int>(rank), OwedStep::kAnyThread});
      }
      for (const OwedStep& owed : states_[rank]->owed) {
        const bool is_it = awaited.step && owed.engine == awaited.engine && owed.step == *awaited.step;
        if (is_it) found.push_back({static_cast<int>(rank), owed.thread});
      }
    }
    return found;
  }

  static bool lacks(const RankState& state, const Awaited& awaited) {
    const auto found = std::ranges::find(state.engines, awaited.engine, &EngineState::engine);
    if (found == state.engines.end() || found->joined || !found->complete) return false;
    return std::ranges::find(found->operations, awaited.operation) == found->operations.end();
  }

  bool is_stuck(const Provider& provider) const {
    const auto& threads = stuck_[index(provider.rank)];
    if (provider.thread != OwedStep::kAnyThread) {
      const bool is_stuck = index(provider.thread) < threads.size() && threads[index(provider.thread)];
      if (!is_stuck || assumption_ == Assumption::kUsualProgram) return is_stuck;
    }
    const bool has_strangers = !states_[index(provider.rank)]->strangers.empty();
    if (assumption_ == Assumption::kNothing && has_strangers) return false;
    return !threads.empty() && std::ranges::find(threads, false) == threads.end();
  }

  bool is_hopeless(const Awaited& awaited) const {
    return std::ranges::any_of(providers(awaited), [&](const Provider& provider) { return is_stuck(provider); });
  }

  bool free_some() {
    bool freed = false;
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      for (std::size_t thread = 0; thread < stuck_[rank].size(); ++thread) {
        if (!stuck_[rank][thread]) continue;
        const auto& waits = states_[rank]->threads[thread].waits;
        if (std::ranges::all_of(waits, [&](const Awaited& awaited) { return is_hopeless(awaited); })) continue;
        stuck_[rank][thread] = false;
        freed = true;
      }
    }
    return freed;
  }

  Provider next(const Provider& at) const {
    for (const Provider& provider : providers(awaited_at(at))) {
      if (!is_stuck(provider)) continue;
      return {provider.rank,
              provider.thread == OwedStep::kAnyThread ? first_stuck_thread(provider.rank) : provider.thread};
    }
    return at;  // Not so: a stuck thread has a stuck provider.
  }

  std::vector<int> ranks_stuck_in(const Awaited& awaited) const {
    const auto is_it = [&](const Awaited& other) {
      return other.engine == awaited.engine && other.operation == awaited.operation && other.step == awaited.step;
    };
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      for (std::size_t thread = 0; thread < stuck_[rank].size(); ++thread) {
        const bool waits = stuck_[rank][thread] && std::ranges::any_of(states_[rank]->threads[thread].waits, is_it);
        if (waits && (ranks.empty() || ranks.back() != static_cast<int>(rank))) {
          ranks.push_back(static_cast<int>(rank));
        }
      }
    }
    return ranks;
  }

  CycleOfWaits describe(const std::vector<Provider>& path) const {
    CycleOfWaits cycle;
    for (const Provider& at : path) {
      CycleOfWaits::Wait wait{at.rank, awaited_at(at), ranks_stuck_in(awaited_at(at)), {}};
      std::set<int> needed;
      for (const Provider& provider : providers(wait.awaited)) {
        if (is_stuck(provider)) needed.insert(provider.rank);
      }
      wait.needed_ranks.assign(needed.begin(), needed.end());
      cycle.needs_confirmation |= wait.awaited.engine != engine_;
      cycle.waits.push_back(std::move(wait));
    }
    return cycle;
  }

  const std::vector<std::optional<RankState>>& states_;
  const std::uint64_t engine_;
  const Assumption assumption_;
  std::unordered_map<std::string, const IncompleteOperation*> incomplete_;
  std::vector<std::vector<bool>> stuck_;  // By rank and thread.
};

}  // namespace

std::optional<CycleOfWaits> find_deadlock(const std::vector<std::optional<RankState>>& states, std::uint64_t engine,
                                          const std::vector<IncompleteOperation>& incomplete, Assumption assumption) {
  return Search(states, engine, incomplete, assumption).cycle();
}

}  // namespace gyre::engine::internal
