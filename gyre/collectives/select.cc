#include "gyre/collectives/select.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/bytes.h"
#include "gyre/collectives/internal/links/link_allreduce.h"
#include "gyre/collectives/internal/links/team.h"
#include "gyre/collectives/internal/shared/shared_layout.h"

namespace gyre::collectives {
namespace {

// Measured on a virtual machine with two cores, ranks as threads, best of several runs.

/// Two ranks: no difference. Four: 16 KB 12.6 µs by mailbox against 17.6 by pipeline, 64 KB 32 against 35.
constexpr std::size_t kMailboxLimitBytes = std::size_t{64} * 1024;
/// Four ranks: 4 KB 5.7 µs by mailbox against 7.2 in the arena, 16 KB 12.6 against 9.7.
constexpr std::size_t kMailboxLimitInArenaBytes = std::size_t{4} * 1024;
/// Over unix sockets, four ranks: 16 KB 54 µs by doubling against 127 by ring, 128 KB 268 against 309, 256 KB 623
/// against 649, 8 MB 17.7 ms against 12.0. The ring sends fewer bytes, so a slower network moves this down.
constexpr std::size_t kDoublingLimitBytes = std::size_t{128} * 1024;

static_assert(kMailboxLimitBytes <= internal::kSlotBytes && kMailboxLimitInArenaBytes <= internal::kSlotBytes);
static_assert(kDoublingLimitBytes <= internal::kSlotBytes, "hosts sum by mailbox before they double");

std::size_t mailbox_limit(bool in_arena) { return in_arena ? kMailboxLimitInArenaBytes : kMailboxLimitBytes; }

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
    if (size_bytes <= mailbox_limit(in_arena)) return Algorithm::kMailbox;
    return in_arena ? Algorithm::kSharedArena : Algorithm::kSharedPipeline;
  }
  const bool small = size_bytes <= kDoublingLimitBytes;
  if (placement.all_apart()) return small ? Algorithm::kRecursiveDoubling : Algorithm::kRing;
  return small ? Algorithm::kHostsDoubling : Algorithm::kHostsRing;
}

std::string reason_for(Algorithm algorithm, std::size_t size_bytes, bool in_arena, const Placement& placement) {
  const std::string bytes = format_bytes(size_bytes);
  switch (algorithm) {
    case Algorithm::kAlone: return "one rank";
    case Algorithm::kMailbox:
      return fmt::format("{} on one host, at most {}", bytes, format_bytes(mailbox_limit(in_arena)));
    case Algorithm::kSharedPipeline: return fmt::format("{} on one host, in private memory", bytes);
    case Algorithm::kSharedArena: return fmt::format("{} on one host, in shared memory already", bytes);
    case Algorithm::kRecursiveDoubling:
      return fmt::format("{} over links, at most {}", bytes, format_bytes(kDoublingLimitBytes));
    case Algorithm::kRing: return fmt::format("{} over links, more than {}", bytes, format_bytes(kDoublingLimitBytes));
    case Algorithm::kHostsDoubling:
      return fmt::format("{} over {} hosts of several ranks, at most {}: one rank of each host", bytes, placement.hosts,
                         format_bytes(kDoublingLimitBytes));
    case Algorithm::kHostsRing:
      return fmt::format(
          "{} over {} hosts of several ranks, more than {}: {} between the hosts", bytes, placement.hosts,
          format_bytes(kDoublingLimitBytes),
          placement.fewest_on_a_host == 1 ? "one ring" : fmt::format("{} rings at once", placement.fewest_on_a_host));
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
  }
  return "unknown";
}

}  // namespace gyre::collectives
