#pragma once

#include <cstdint>
#include <string_view>

namespace gyre::collectives {

/// How an allreduce between hosts travels.
enum class LinkSchedule : std::uint8_t {
  kDoubling,  ///< schedule/recursive_doubling.h: few rounds, each with the whole buffer.
  kRing,      ///< schedule/ring.h: the fewest bytes, as many steps as there are hosts, twice.
  kHalving,   ///< schedule/halving_doubling.h: few rounds and few bytes, where the number of hosts is a power of two.
};

std::string_view link_schedule_name(LinkSchedule schedule);

/// What a link and the processors behind it do.
struct LinkRates {
  double latency_seconds = 0;            ///< Of a message, both ends' work included.
  double bytes_per_second = 0;           ///< In each direction, both at the same time.
  double combined_bytes_per_second = 0;  ///< While nothing is sent; 0: at once.
};

/// By which schedules are chosen: 10 Gbit/s Ethernet. Fixed, not measured: a schedule decides the order of a sum, and a
/// repeated run must give the same bits.
constexpr LinkRates kUsualLinks{.latency_seconds = 30e-6, .bytes_per_second = 1.25e9, .combined_bytes_per_second = 4e9};

/// Of the member that has most of each.
struct LinkCost {
  int messages = 0;          ///< One after the other.
  double bytes_in_turn = 0;  ///< That cross a link while the others wait.
  double bytes_sent = 0;
  double bytes_combined = 0;  ///< While nothing is sent; what is combined piece by piece during a transfer is free.

  double seconds(const LinkRates& rates) const;
};

/// For n members, M bytes, and 2^k the largest power of two up to n; "+" only where n is another number:
///
///   recursive doubling      k (+ 2) messages of M bytes, k (+ 1) times M combined
///   ring                    2 (n-1) messages of M/n bytes
///   halving and doubling    2 k (+ 2) messages, 2 (2^k - 1)/2^k M (+ 2 M) bytes
///
/// Pure; nothing for one member.
LinkCost link_cost(LinkSchedule schedule, int members, double bytes);

/// kHalving, which opens more links than a ring and does not overlap its steps, is chosen where it gains more than this
/// factor over the better of the other two.
constexpr double kGainOfHalving = 1.25;

/// Doubling for small sizes, halving from some size on where there are many members, the ring for large sizes; never
/// slower than the best by more than kGainOfHalving, by the model. Pure: all ranks choose alike.
LinkSchedule choose_link_schedule(int members, std::uint64_t bytes, const LinkRates& rates = kUsualLinks);

/// Up to where each is chosen.
struct LinkThresholds {
  std::uint64_t doubling_bytes = 0;  ///< At most.
  std::uint64_t halving_bytes = 0;   ///< At most, if it is more than the other. The ring above both.
};
LinkThresholds link_thresholds(int members, const LinkRates& rates = kUsualLinks);

}  // namespace gyre::collectives
