#include "gyre/collectives/link_cost.h"

#include <algorithm>

#include "gyre/base/check.h"
#include "gyre/collectives/schedule/fold.h"
#include "gyre/collectives/schedule/halving_doubling.h"
#include "gyre/collectives/schedule/recursive_doubling.h"

namespace gyre::collectives {
namespace {

/// More than any buffer has.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;

/// The most bytes for which `holds`, which is true up to some size and false from there on.
template <typename Condition>
std::uint64_t last_for_which(const Condition& holds) {
  std::uint64_t low = 0;
  std::uint64_t high = kMostBytes;
  while (low < high) {
    const std::uint64_t middle = high - (high - low) / 2;
    if (holds(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

std::string_view link_schedule_name(LinkSchedule schedule) {
  switch (schedule) {
    case LinkSchedule::kDoubling: return "recursive doubling";
    case LinkSchedule::kRing: return "ring";
    case LinkSchedule::kHalving: return "halving and doubling";
  }
  return "unknown";
}

double LinkCost::seconds(const LinkRates& rates) const {
  const double combining = rates.combined_bytes_per_second > 0 ? bytes_combined / rates.combined_bytes_per_second : 0;
  return messages * rates.latency_seconds + bytes_in_turn / rates.bytes_per_second + combining;
}

LinkCost link_cost(LinkSchedule schedule, int members, double bytes) {
  GYRE_CHECK(members >= 1);
  if (members == 1) return {};
  const Fold fold(members);
  const bool folds = fold.excess > 0;
  switch (schedule) {
    case LinkSchedule::kDoubling: {
      const int rounds = recursive_doubling_rounds(members);
      const double sums = fold.doublings() + (folds ? 1 : 0);
      return {.messages = rounds,
              .bytes_in_turn = rounds * bytes,
              .bytes_sent = sums * bytes,
              .bytes_combined = sums * bytes};
    }
    case LinkSchedule::kRing: {
      const int steps = 2 * (members - 1);
      const double sent = steps * bytes / members;
      return {.messages = steps, .bytes_in_turn = sent, .bytes_sent = sent};
    }
    case LinkSchedule::kHalving: {
      const double halves = 2.0 * (fold.core - 1) / fold.core * bytes;
      return {.messages = halving_doubling_rounds(members),
              .bytes_in_turn = halves + (folds ? 2 * bytes : 0),
              .bytes_sent = halves + (folds ? bytes : 0)};
    }
  }
  return {};
}

LinkSchedule choose_link_schedule(int members, std::uint64_t bytes, const LinkRates& rates) {
  const auto seconds = [&](LinkSchedule schedule) {
    return link_cost(schedule, members, static_cast<double>(bytes)).seconds(rates);
  };
  const double doubling = seconds(LinkSchedule::kDoubling);
  const double ring = seconds(LinkSchedule::kRing);
  if (std::min(doubling, ring) > kGainOfHalving * seconds(LinkSchedule::kHalving)) return LinkSchedule::kHalving;
  return doubling <= ring ? LinkSchedule::kDoubling : LinkSchedule::kRing;
}

LinkThresholds link_thresholds(int members, const LinkRates& rates) {
  const auto chosen = [&](std::uint64_t bytes) { return choose_link_schedule(members, bytes, rates); };
  return {.doubling_bytes = last_for_which([&](auto bytes) { return chosen(bytes) == LinkSchedule::kDoubling; }),
          .halving_bytes = last_for_which([&](auto bytes) { return chosen(bytes) != LinkSchedule::kRing; })};
}

}  // namespace gyre::collectives
