#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/engine/internal/open/negotiation.h"
#include "gyre/engine/internal/open/negotiation_tree.h"

namespace gyre::engine::internal {

/// Merges what the ranks below an inner rank of the negotiation's tree announce. An operation that all of them have
/// announced goes up at once, as one announcement for each signature; others follow when they have waited for
/// kPatience, so that the coordinator knows who waits for whom. What ranks report of themselves (joins, goodbyes,
/// answers) goes up at once and unchanged, and takes with it all that they have announced before.
///
/// It decides nothing, and the coordinator's decisions do not depend on how announcements are merged. Pure, no I/O, one
/// thread.
class Aggregator {
 public:
  /// How long an operation waits here for the other ranks.
  static constexpr std::chrono::milliseconds kPatience{50};

  /// `ranks`: those that it speaks for, ascending.
  explicit Aggregator(std::vector<int> ranks);

  /// A child has announced something. Error(kProtocol) if it names ranks for which it does not speak, or announces an
  /// operation twice.
  void take(const NegotiationPlace::Child& child, AnnouncementContent content, SteadyClock::time_point now);
  /// An order on its way down, before the children get it: what it orders or refuses waits no longer.
  void obey(const Order& order);

  /// What is to be said to the parent now; its announcements are of all ranks unless they name some.
  std::optional<AnnouncementContent> next_announcement(SteadyClock::time_point now);
  /// When next_announcement() will have something to say if nothing else happens.
  std::optional<SteadyClock::time_point> next_deadline() const;

 private:
  struct Operation {
    std::vector<Announced> unsent;  // One for each signature; `ranks` are those that have announced it.
    std::vector<bool> announced;    // By place in ranks_.
    std::size_t count = 0;          // Of those, sent or not.
    SteadyClock::time_point since;  // The first of `unsent`.
    std::uint64_t arrival = 0;
  };
  using ByName = std::unordered_map<std::string, Operation>;

  std::size_t place_of(int rank) const;
  void announce(const NegotiationPlace::Child& child, Announced announced, SteadyClock::time_point now);
  void note(int rank, RankNote note);
  /// All have announced it but those who have joined or left.
  bool is_complete(const Operation& operation) const;
  void send(Operation& operation, std::vector<Announced>& to);
  void finish(ByName::iterator entry);
  void forget(const std::string& name);

  const std::vector<int> ranks_;
  ByName operations_;
  std::map<std::uint64_t, ByName::value_type*> unsent_;  // Incomplete ones with something unsent, by arrival.
  std::vector<Announced> complete_;
  std::vector<RelayedNote> notes_;
  std::vector<bool> joined_;    // By place.
  std::vector<bool> departed_;  // Likewise.
  bool anybody_absent_ = false;
  std::uint64_t arrivals_ = 0;
};

/// Error(kProtocol) if a child names ranks for which it does not speak.
void check_speaker(const NegotiationPlace::Child& child, const AnnouncementContent& content);

}  // namespace gyre::engine::internal
