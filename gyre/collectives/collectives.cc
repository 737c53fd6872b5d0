#include "gyre/collectives/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/collectives/internal/kernels/reduction_plan.h"
#include "gyre/collectives/internal/links/hierarchical_allreduce.h"
#include "gyre/collectives/internal/links/link_allreduce.h"
#include "gyre/collectives/internal/links/link_collectives.h"
#include "gyre/collectives/internal/links/link_reduce_scatter.h"
#include "gyre/collectives/internal/links/team.h"
#include "gyre/collectives/internal/shared/shared_allreduce.h"
#include "gyre/collectives/internal/shared/shared_collectives.h"
#include "gyre/collectives/internal/shared/shared_layout.h"
#include "gyre/collectives/internal/shared/shared_room.h"
#include "gyre/collectives/kernels.h"
#include "gyre/collectives/schedule/chunks.h"
#include "gyre/collectives/select.h"

namespace gyre::collectives {
namespace {

using internal::ReductionPlan;
using internal::SharedRoom;

/// Whether all ranks of the lane meet in one segment. Otherwise most collectives go over links, also between ranks of
/// one host; allreduce and broadcast use both.
bool in_one_room(const group::Lane& lane) { return lane.topology().one_host() && !lane.segment().empty(); }

std::size_t sum_of(std::span<const std::size_t> sizes_bytes) {
  return std::accumulate(sizes_bytes.begin(), sizes_bytes.end(), std::size_t{0});
}

void check_sizes(const group::Lane& lane, std::span<const std::size_t> sizes_bytes, std::size_t buffer_bytes) {
  GYRE_CHECK(sizes_bytes.size() == static_cast<std::size_t>(lane.size()));
  GYRE_CHECK(sum_of(sizes_bytes) == buffer_bytes);
}

std::size_t own_size(const group::Lane& lane, std::span<const std::size_t> sizes_bytes) {
  return sizes_bytes[static_cast<std::size_t>(lane.rank())];
}

/// One allreduce on its way.
struct Allreduce {
  group::Lane& lane;
  std::uint64_t collective;
  std::span<std::byte> buffer;
  const ReductionPlan& plan;
  std::optional<std::size_t> arena_offset_bytes{};  ///< Where the buffer lies in this rank's arena, if it does.
  PeerMappings* memory = nullptr;                   ///< If ranks of a host may map each other's buffers,
  const PeerMappedBuffer* own = nullptr;            ///< this one's.
};

/// Where all ranks' buffers lie, if they may be reduced there: in their arenas, or mapped by all ranks. All ranks of
/// the host have arrived then.
std::optional<std::vector<std::byte*>> places_of_buffers(SharedRoom& room, const Allreduce& call) {
  if (call.arena_offset_bytes) {
    room.arrive_and_wait();
    return places_in_arenas(room, *call.arena_offset_bytes, call.buffer.size());
  }
  if (call.memory == nullptr || call.buffer.size() < PeerMappings::kLeastBytes) return std::nullopt;
  auto places = call.memory->agree(room, call.buffer, *call.own);
  if (places) call.lane.counters().bytes_in_place += call.buffer.size();
  return places;
}

void run_as_chosen(const Allreduce& call, Algorithm algorithm) {
  const auto& [lane, collective, buffer, plan, arena_offset_bytes, memory, own] = call;
  switch (algorithm) {
    case Algorithm::kAlone:
      return scale_in_place(buffer.data(), plan.elements_in(buffer.size()), plan.type, plan.scaling);
    case Algorithm::kMailbox: {
      SharedRoom room(lane, collective);
      return allreduce_by_mailbox(room, buffer, plan);
    }
    case Algorithm::kSharedPipeline:
    case Algorithm::kSharedArena: {
      SharedRoom room(lane, collective);
      auto places = places_of_buffers(room, call);
      if (places) return allreduce_in_places(room, std::move(*places), buffer.size(), plan);
      return allreduce_by_pipeline(room, buffer, plan);
    }
    case Algorithm::kRecursiveDoubling: return allreduce_all_by_doubling(lane, collective, buffer, plan);
    case Algorithm::kRing: return allreduce_all_in_chunks(lane, collective, buffer, plan, LinkSchedule::kRing);
    case Algorithm::kHalving: return allreduce_all_in_chunks(lane, collective, buffer, plan, LinkSchedule::kHalving);
    case Algorithm::kHostsDoubling: {
      SharedRoom room(lane, collective);
      return allreduce_small_by_hosts(lane, room, collective, buffer, plan);
    }
    case Algorithm::kHostsHalving:
    case Algorithm::kHostsRing: {
      const auto schedule = algorithm == Algorithm::kHostsRing ? LinkSchedule::kRing : LinkSchedule::kHalving;
      SharedRoom room(lane, collective);
      const auto places = places_of_buffers(room, call);
      if (places) return allreduce_places_by_hosts(lane, room, collective, *places, buffer.size(), plan, schedule);
      return allreduce_by_hosts(lane, room, collective, buffer, plan, schedule);
    }
  }
}

Algorithm choose_and_run(group::Lane& lane, std::span<std::byte> buffer, const Reduction& reduction,
                         std::optional<std::size_t> arena_offset_bytes, PeerMappings* memory,
                         const PeerMappedBuffer* own) {
  const ReductionPlan plan = internal::plan_reduction(reduction, lane.size());
  GYRE_CHECK(buffer.size() % size_of(plan.type) == 0U);
  const Placement placement = placement_of(lane);
  const Allreduce call{lane, lane.begin_collective(), buffer, plan, arena_offset_bytes, memory, own};
  const Algorithm algorithm = allreduce_algorithm(buffer.size(), arena_offset_bytes.has_value(), placement);
  if (buffer.empty()) return algorithm;  // On all ranks alike.
  run_as_chosen(call, algorithm);
  return algorithm;
}

}  // namespace

std::string reduction_problem(const Reduction& reduction) {
  const bool scales = reduction.prescale != 1.0 || reduction.postscale != 1.0;
  if (reduction.type == DataType::kBoolean && (scales || reduction.operation == ReduceOperation::kAverage)) {
    return fmt::format(
        "bool tensors cannot be scaled or averaged (operation {}, prescale {}, postscale {}); use max "
        "(or), min (and) or sum, or convert them to a number type",
        name(reduction.operation), reduction.prescale, reduction.postscale);
  }
  if (is_floating_point(reduction.type)) return {};
  for (const double factor : {reduction.prescale, reduction.postscale}) {
    // NaN is neither.
    if (factor == 0.0 || (std::abs(factor) >= 0x1p-53 && std::abs(factor) <= 0x1p32)) continue;
    return fmt::format(
        "{} tensors cannot be multiplied by {}: the factors of integers are 0 or between 2^-53 and 2^32; "
        "convert the tensor to a floating-point type",
        name(reduction.type), factor);
  }
  return {};
}

Algorithm allreduce(group::Lane& lane, std::span<std::byte> buffer, const Reduction& reduction) {
  return choose_and_run(lane, buffer, reduction, std::nullopt, nullptr, nullptr);
}

Algorithm allreduce(group::Lane& lane, std::span<std::byte> buffer, const Reduction& reduction, PeerMappings& memory,
                    const PeerMappedBuffer& own) {
  return choose_and_run(lane, buffer, reduction, std::nullopt, &memory, &own);
}

Algorithm allreduce_in_arena(group::Lane& lane, std::size_t offset_bytes, std::size_t size_bytes,
                             const Reduction& reduction) {
  GYRE_CHECK(offset_bytes % kCacheLineBytes == 0U);
  GYRE_CHECK(size_bytes % kCacheLineBytes == 0U);
  const std::span<std::byte> all = arena(lane);
  GYRE_CHECK(offset_bytes <= all.size());
  GYRE_CHECK(size_bytes <= all.size() - offset_bytes);
  return choose_and_run(lane, all.subspan(offset_bytes, size_bytes), reduction, offset_bytes, nullptr, nullptr);
}

void combine_contributions(std::span<std::byte> result, std::span<const std::byte* const> contributions,
                           const Reduction& reduction, std::span<const std::vector<int>> hosts) {
  const ReductionPlan plan = internal::plan_reduction(reduction, static_cast<int>(contributions.size()));
  const std::size_t count = plan.elements_in(result.size());
  if (hosts.size() <= 1) return reduce(result.data(), contributions, count, plan.type, plan.operation, plan.scaling);
  std::vector<std::vector<std::byte>> values;
  std::vector<const std::byte*> in_order;
  for (const std::vector<int>& ranks : hosts) {
    std::vector<const std::byte*> sources;
    for (const int rank : ranks) {
      GYRE_CHECK(static_cast<std::size_t>(rank) < contributions.size());
      sources.push_back(contributions[static_cast<std::size_t>(rank)]);
    }
    std::vector<std::byte>& sums = values.emplace_back(count * size_of(plan.sum_type));
    add_up(sums.data(), sources, count, plan);
    in_order.push_back(sums.data());
  }
  reduce(values.front().data(), in_order, count, plan.sum_type, plan.operation, plan.at_the_end());
  narrow_sums(result, values.front(), plan);
}

std::span<std::byte> arena(group::Lane& lane) {
  if (lane.segment().empty()) return {};
  return internal::SharedLayout(lane.segment(), lane.topology().local_size()).arena(lane.topology().local_rank());
}

void broadcast(group::Lane& lane, std::span<std::byte> buffer, int root) {
  GYRE_CHECK(root >= 0);
  GYRE_CHECK(root < lane.size());
  const std::uint64_t collective = lane.begin_collective();
  if (buffer.empty() || lane.size() == 1) return;
  if (lane.segment().empty()) {
    return internal::broadcast_over_links(lane, collective, internal::everybody(lane.topology()), buffer, root);
  }
  // One rank of each host gets it over links, and hands it on in shared memory.
  const group::Topology& topology = lane.topology();
  const internal::Team team = internal::one_per_host(topology, root);
  if (team.size() > 1 && team.place >= 0) internal::broadcast_over_links(lane, collective, team, buffer, root);
  if (topology.local_size() == 1) return;
  const std::vector<int>& local_ranks = topology.local_ranks();
  const auto giver = std::find(local_ranks.begin(), local_ranks.end(), team.rank_at(topology.host_index()));
  SharedRoom room(lane, collective);
  internal::broadcast_shared(room, buffer, static_cast<int>(giver - local_ranks.begin()));
}

void allgather(group::Lane& lane, std::span<const std::byte> own, std::span<const std::size_t> sizes_bytes,
               std::span<std::byte> output) {
  check_sizes(lane, sizes_bytes, output.size());
  GYRE_CHECK(own.size() == own_size(lane, sizes_bytes));
  const std::uint64_t collective = lane.begin_collective();
  if (output.empty()) return;
  if (lane.size() == 1) {
    if (output.data() != own.data()) std::memcpy(output.data(), own.data(), own.size());
    return;
  }
  if (!in_one_room(lane)) return internal::allgather_over_links(lane, collective, own, sizes_bytes, output);
  SharedRoom room(lane, collective);
  internal::allgather_shared(room, own, sizes_bytes, output);
}

void reduce_scatter(group::Lane& lane, std::span<const std::byte> input, std::span<const std::size_t> sizes_bytes,
                    std::span<std::byte> output, const Reduction& reduction) {
  check_sizes(lane, sizes_bytes, input.size());
  GYRE_CHECK(output.size() == own_size(lane, sizes_bytes));
  const ReductionPlan plan = internal::plan_reduction(reduction, lane.size());
  const std::uint64_t collective = lane.begin_collective();
  if (input.empty()) return;
  if (lane.size() == 1) {
    std::memmove(output.data(), input.data(), input.size());
    scale_in_place(output.data(), plan.elements_in(output.size()), plan.type, plan.scaling);
    return;
  }
  if (in_one_room(lane)) {
    SharedRoom room(lane, collective);
    return internal::reduce_scatter_shared(room, input, sizes_bytes, output, plan);
  }
  if (lane.segment().empty() || lane.topology().hosts().size() == static_cast<std::size_t>(lane.size())) {
    return internal::reduce_scatter_over_links(lane, collective, input, sizes_bytes, output, plan);
  }
  SharedRoom room(lane, collective);
  internal::reduce_scatter_by_hosts(lane, room, collective, input, sizes_bytes, output, plan);
}

void all_to_all(group::Lane& lane, std::span<const std::byte> input, std::span<const std::size_t> send_bytes,
                std::span<std::byte> output, std::span<const std::size_t> receive_bytes) {
  check_sizes(lane, send_bytes, input.size());
  check_sizes(lane, receive_bytes, output.size());
  GYRE_CHECK(own_size(lane, send_bytes) == own_size(lane, receive_bytes));
  const std::uint64_t collective = lane.begin_collective();
  if (lane.size() == 1) {
    if (!input.empty()) std::memmove(output.data(), input.data(), input.size());
    return;
  }
  if (!in_one_room(lane)) {
    return internal::all_to_all_over_links(lane, collective, input, send_bytes, output, receive_bytes);
  }
  SharedRoom room(lane, collective);
  internal::all_to_all_shared(room, input, send_bytes, output, receive_bytes);
}

std::vector<std::int64_t> exchange_numbers(group::Lane& lane, std::span<const std::int64_t> to_each) {
  GYRE_CHECK(to_each.size() == static_cast<std::size_t>(lane.size()));
  std::vector<std::int64_t> from_each(to_each.size());
  if (lane.size() > 1 && !in_one_room(lane)) {
    internal::exchange_numbers_over_links(lane, lane.begin_collective(), to_each, from_each);
    return from_each;
  }
  const std::vector<std::size_t> one_each(to_each.size(), sizeof(std::int64_t));
  all_to_all(lane, std::as_bytes(to_each), one_each, std::as_writable_bytes(std::span(from_each)), one_each);
  return from_each;
}

void barrier(group::Lane& lane) {
  const std::uint64_t collective = lane.begin_collective();
  if (lane.size() == 1) return;
  if (!in_one_room(lane)) return internal::barrier_over_links(lane, collective);
  SharedRoom(lane, collective).arrive_and_wait();
}

std::size_t segment_bytes_for(int local_size, std::size_t arena_bytes) {
  return internal::SharedLayout::segment_bytes_for(local_size, arena_bytes);
}

}  // namespace gyre::collectives
