#include "gyre/collectives/select.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/bytes.h"
#include "gyre/collectives/internal/links/link_allreduce.h"
#include "gyre/collectives/internal/links/team.h"
#include "gyre/collectives/internal/shared/shared_layout.h"
#include "gyre/collectives/link_cost.h"

namespace gyre::collectives {
namespace {

// Measured on a virtual machine with two cores, ranks as threads, best of several runs.

/// At mailboxes every rank reads what every other one has written, so each process maps the memory of all. With 1,024
/// ranks (processes) that took 3.7 million page faults and 1.6 MB of page tables in each process, and the first
/// allreduce 3.2 s. In the pipeline one rank sums what is small: 0.6 million, and 0.27 s. The time of a later one was
/// the same from 64 on.
constexpr int kMostRanksAtMailboxes = 64;

/// Two ranks: no difference. Four: 16 KB 12.6 µs by mailbox against 17.6 by pipeline, 64 KB 32 against 35.
constexpr std::size_t kMailboxLimitBytes = std::size_t{64} * 1024;
/// Four ranks: 4 KB 5.7 µs by mailbox against 7.2 in the arena, 16 KB 12.6 against 9.7.
constexpr std::size_t kMailboxLimitInArenaBytes = std::size_t{4} * 1024;
static_assert(kMailboxLimitBytes <= internal::kSlotBytes && kMailboxLimitInArenaBytes <= internal::kSlotBytes);

/// Hosts sum by mailbox before they double. The thresholds by cost are below that, for any number of hosts.
LinkSchedule link_schedule(std::size_t size_bytes, const Placement& placement) {
  const LinkSchedule chosen = choose_link_schedule(placement.hosts, size_bytes);
  return chosen == LinkSchedule::kDoubling && size_bytes > internal::kSlotBytes ? LinkSchedule::kRing : chosen;
}

Algorithm over_links(LinkSchedule schedule, bool all_apart) {
  switch (schedule) {
    case LinkSchedule::kDoubling: return all_apart ? Algorithm::kRecursiveDoubling : Algorithm::kHostsDoubling;
    case LinkSchedule::kRing: return all_apart ? Algorithm::kRing : Algorithm::kHostsRing;
    case LinkSchedule::kHalving: return all_apart ? Algorithm::kHalving : Algorithm::kHostsHalving;
  }
  return Algorithm::kRing;
}

LinkSchedule schedule_of(Algorithm algorithm) {
  if (algorithm == Algorithm::kRing || algorithm == Algorithm::kHostsRing) return LinkSchedule::kRing;
  const bool halves = algorithm == Algorithm::kHalving || algorithm == Algorithm::kHostsHalving;
  return halves ? LinkSchedule::kHalving : LinkSchedule::kDoubling;
}

/// "more than 57 KB and at most 24.7 MB": where the schedule is the quickest.
std::string range_of(LinkSchedule schedule, int hosts) {
  const LinkThresholds limits = link_thresholds(hosts);
  const std::string most_doubled = format_bytes(limits.doubling_bytes);
  if (schedule == LinkSchedule::kDoubling) return "at most " + most_doubled;
  if (schedule == LinkSchedule::kRing) {
    return "more than " + format_bytes(std::max(limits.doubling_bytes, limits.halving_bytes));
  }
  return fmt::format("more than {} and at most {}", most_doubled, format_bytes(limits.halving_bytes));
}

/// Why it is.
std::string cost_of_links(LinkSchedule schedule, std::size_t size_bytes, int hosts) {
  const LinkCost cost = link_cost(schedule, hosts, static_cast<double>(size_bytes));
  return fmt::format("{} message{} in a row, {} over each link", cost.messages, cost.messages == 1 ? "" : "s",
                     format_bytes(static_cast<std::uint64_t>(cost.bytes_in_turn)));
}

/// Up to how many bytes.
std::size_t mailbox_limit(bool in_arena, int ranks) {
  if (ranks > kMostRanksAtMailboxes) return 0;
  return in_arena ? kMailboxLimitInArenaBytes : kMailboxLimitBytes;
}

/// Why what is small does not go by mailbox.
std::string small_of_many(std::size_t size_bytes, bool in_arena, int ranks) {
  if (size_bytes > mailbox_limit(in_arena, 2)) return "";
  return fmt::format(" with {} ranks, more than {}", ranks, kMostRanksAtMailboxes);
}

}  // namespace

Placement placement_of(const group::Topology& topology) {
  return {topology.size(), static_cast<int>(topology.hosts().size()), internal::fewest_on_a_host(topology)};
}

Placement placement_of(const group::Lane& lane) {
  if (lane.segment().empty()) return {lane.size(), lane.size(), 1};
  return placement_of(lane.topology());
}

Algorithm allreduce_algorithm(std::size_t size_bytes, bool in_arena, const Placement& placement) {
  if (placement.size == 1) return Algorithm::kAlone;
  if (placement.one_host()) {
    if (size_bytes <= mailbox_limit(in_arena, placement.size)) return Algorithm::kMailbox;
    return in_arena ? Algorithm::kSharedArena : Algorithm::kSharedPipeline;
  }
  return over_links(link_schedule(size_bytes, placement), placement.all_apart());
}

std::string reason_for(Algorithm algorithm, std::size_t size_bytes, bool in_arena, const Placement& placement) {
  const std::string bytes = format_bytes(size_bytes);
  switch (algorithm) {
    case Algorithm::kAlone: return "one rank";
    case Algorithm::kMailbox:
      return fmt::format("{} on one host, at most {}", bytes, format_bytes(mailbox_limit(in_arena, placement.size)));
    case Algorithm::kSharedPipeline:
    case Algorithm::kSharedArena:
      return fmt::format("{} on one host{}, in {}", bytes, small_of_many(size_bytes, in_arena, placement.size),
                         in_arena ? "shared memory already" : "private memory");
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kRing:
    case Algorithm::kHalving: {
      const LinkSchedule schedule = schedule_of(algorithm);
      return fmt::format("{} over links, {}: {}", bytes, range_of(schedule, placement.hosts),
                         cost_of_links(schedule, size_bytes, placement.hosts));
    }
    case Algorithm::kHostsDoubling:
    case Algorithm::kHostsRing:
    case Algorithm::kHostsHalving: {
      const LinkSchedule schedule = schedule_of(algorithm);
      const int slices = schedule == LinkSchedule::kDoubling ? 1 : placement.fewest_on_a_host;
      return fmt::format("{} over {} hosts of several ranks, {}: {}{}", bytes, placement.hosts,
                         range_of(schedule, placement.hosts), cost_of_links(schedule, size_bytes, placement.hosts),
                         slices == 1 ? ", by one rank of each host" : fmt::format(", in {} parts at once", slices));
    }
  }
  return "";
}

Choice choose_allreduce(std::size_t size_bytes, bool in_arena, const Placement& placement) {
  const Algorithm algorithm = allreduce_algorithm(size_bytes, in_arena, placement);
  return {algorithm, reason_for(algorithm, size_bytes, in_arena, placement)};
}

std::size_t piece_bytes(Algorithm algorithm, std::size_t size_bytes, const Placement& placement) {
  const auto share_of = [&](int count) { return size_bytes / static_cast<std::size_t>(count); };
  switch (algorithm) {
    case Algorithm::kSharedPipeline: return std::min(size_bytes, internal::kSlotBytes);
    case Algorithm::kSharedArena: return share_of(placement.size);
    case Algorithm::kRing: return internal::ring_piece_bytes(share_of(placement.size));
    case Algorithm::kHostsRing:
      return internal::ring_piece_bytes(share_of(placement.fewest_on_a_host * placement.hosts));
    // Of the first step.
    case Algorithm::kHalving: return internal::ring_piece_bytes(share_of(2));
    case Algorithm::kHostsHalving: return internal::ring_piece_bytes(share_of(2 * placement.fewest_on_a_host));
    case Algorithm::kAlone:
    case Algorithm::kMailbox:
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kHostsDoubling: return size_bytes;
  }
  return size_bytes;
}

std::string_view algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAlone: return "alone";
    case Algorithm::kMailbox: return "mailbox";
    case Algorithm::kSharedPipeline: return "shared pipeline";
    case Algorithm::kSharedArena: return "shared arena";
    case Algorithm::kRecursiveDoubling: return "recursive doubling";
    case Algorithm::kRing: return "ring";
    case Algorithm::kHostsDoubling: return "recursive doubling of hosts";
    case Algorithm::kHostsRing: return "rings of hosts";
    case Algorithm::kHalving: return "halving and doubling";
    case Algorithm::kHostsHalving: return "halving and doubling of hosts";
  }
  return "unknown";
}

}  // namespace gyre::collectives
