#include "gyre/collectives/internal/links/hierarchical_allreduce.h"

#include <vector>

#include "gyre/base/check.h"
#include "gyre/collectives/copy_bytes.h"
#include "gyre/collectives/internal/index_of.h"
#include "gyre/collectives/internal/links/link_allreduce.h"
#include "gyre/collectives/internal/links/team.h"
#include "gyre/collectives/internal/shared/shared_collectives.h"
#include "gyre/collectives/kernels.h"
#include "gyre/collectives/schedule/chunks.h"

namespace gyre::collectives::internal {
namespace {

/// Bytes of each local rank's slice, by local rank: ranks beyond the smallest host's have none.
std::vector<std::size_t> slice_sizes(const group::Topology& topology, std::size_t size_bytes, DataType type) {
  const int slices = fewest_on_a_host(topology);
  std::vector<std::size_t> sizes_bytes(index_of(topology.local_size()));
  for (int j = 0; j < slices; ++j) {
    const std::size_t elements = size_bytes / size_of(type);
    sizes_bytes[index_of(j)] = even_chunk(elements, slices, j, elements_per_cache_line(type)).count * size_of(type);
  }
  return sizes_bytes;
}

/// This rank's slice.
std::span<std::byte> own_slice(std::span<std::byte> buffer, const std::vector<std::size_t>& sizes_bytes,
                               int local_rank) {
  const ElementRange range = ragged_chunks(sizes_bytes)[index_of(local_rank)];
  return buffer.subspan(range.begin, range.count);
}

}  // namespace

void allreduce_small_by_hosts(group::Lane& lane, SharedRoom& room, std::uint64_t collective,
                              std::span<std::byte> buffer, const ReductionPlan& plan) {
  GYRE_CHECK(buffer.size() <= kSlotBytes);
  constexpr int kLeader = 0;
  copy_for_others(room.slot(room.rank(), 0), buffer.data(), buffer.size());
  room.arrive_and_wait();
  if (room.rank() == kLeader) {
    std::vector<const std::byte*> sources(index_of(room.size()));
    for (int r = 0; r < room.size(); ++r) sources[index_of(r)] = room.slot(r, 1);
    const PartialSums sums(buffer, plan);
    add_up(sums.bytes().data(), sources, plan.elements_in(buffer.size()), plan);
    allreduce_by_doubling(lane, collective, counterparts(lane.topology()), sums.bytes(), link_reduction(plan, false));
    sums.give(0, sums.bytes().size());
    copy_for_others(room.slot(kLeader, 0), buffer.data(), buffer.size());
  }
  room.arrive_and_wait();
  if (room.rank() != kLeader) copy_bytes(buffer.data(), room.slot(kLeader, 1), buffer.size());
}

void allreduce_by_hosts(group::Lane& lane, SharedRoom& room, std::uint64_t collective, std::span<std::byte> buffer,
                        const ReductionPlan& plan, LinkSchedule schedule) {
  const std::vector<std::size_t> sizes_bytes = slice_sizes(lane.topology(), buffer.size(), plan.type);
  const std::span<std::byte> slice = own_slice(buffer, sizes_bytes, room.rank());
  const PartialSums sums(slice, plan);
  // The sum may stand where the contribution stood: a piece is written after it has been copied to the mailbox.
  add_up_shared(room, buffer, sizes_bytes, sums.bytes(), plan);
  if (!slice.empty()) {
    const RangeHook give = [&](std::size_t offset, std::size_t size) {
      sums.give(offset, size);
      room.note_progress();
    };
    allreduce_in_chunks(lane, collective, counterparts(lane.topology()), sums.bytes(), link_reduction(plan, false),
                        schedule, {.prepare = {}, .publish = give});
  }
  allgather_shared(room, slice, sizes_bytes, buffer);
}

void allreduce_places_by_hosts(group::Lane& lane, SharedRoom& room, std::uint64_t collective,
                               std::span<std::byte* const> places, std::size_t size_bytes, const ReductionPlan& plan,
                               LinkSchedule schedule) {
  const std::vector<std::size_t> sizes_bytes = slice_sizes(lane.topology(), size_bytes, plan.type);
  std::vector<std::span<std::byte>> slices;  // The same one in every rank's place.
  for (std::byte* const place : places) slices.push_back(own_slice({place, size_bytes}, sizes_bytes, room.rank()));
  const std::span<std::byte> own = slices[index_of(room.rank())];
  const PartialSums sums(own, plan);

  const RangeHook sum_up = [&](std::size_t offset, std::size_t size) {
    std::vector<const std::byte*> sources;
    for (const std::span<std::byte>& slice : slices) sources.push_back(slice.data() + sums.in_range(offset));
    add_up(sums.bytes().data() + offset, sources, plan.elements_in(sums.in_range(size)), plan);
  };
  const RangeHook hand_out = [&](std::size_t offset, std::size_t size) {
    sums.give(offset, size);
    const std::size_t begin = sums.in_range(offset);
    for (const std::span<std::byte>& slice : slices) {
      copy_bytes(slice.data() + begin, own.data() + begin, sums.in_range(size));
    }
    room.note_progress();
  };
  // Nobody but this rank reads or writes its slice until the end.
  if (!own.empty()) {
    allreduce_in_chunks(lane, collective, counterparts(lane.topology()), sums.bytes(), link_reduction(plan, false),
                        schedule, {.prepare = sum_up, .publish = hand_out});
  }
  room.arrive_and_wait();  // All slices are out.
}

}  // namespace gyre::collectives::internal
