#include "gyre/collectives/internal/shared/shared_allreduce.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/collectives/copy_bytes.h"
#include "gyre/collectives/internal/index_of.h"
#include "gyre/collectives/kernels.h"
#include "gyre/collectives/schedule/chunks.h"

namespace gyre::collectives::internal {
namespace {

/// Piece `index` of a buffer.
std::span<std::byte> piece_of(std::span<std::byte> buffer, std::size_t index, std::size_t piece_bytes) {
  const std::size_t begin = index * piece_bytes;
  return buffer.subspan(begin, std::min(piece_bytes, buffer.size() - begin));
}

/// The contributions to a piece: the others' from the slots of an arrival, the own one where it came from.
std::vector<const std::byte*> contributions(const SharedRoom& room, std::uint64_t arrivals_ago, const std::byte* own) {
  std::vector<const std::byte*> sources(index_of(room.size()));
  for (int r = 0; r < room.size(); ++r) {
    sources[index_of(r)] = r == room.rank() ? own : room.slot(r, arrivals_ago);
  }
  return sources;
}

void reduce_privately(const SharedRoom& room, std::uint64_t arrivals_ago, std::span<std::byte> piece,
                      const ReductionPlan& plan) {
  reduce(piece.data(), contributions(room, arrivals_ago, piece.data()), plan.elements_in(piece.size()), plan.type,
         plan.operation, plan.scaling);
}

/// The slice of a piece that a rank reduces, in bytes.
struct Slice {
  std::size_t begin;
  std::size_t size;
};

Slice slice_of(std::size_t piece_bytes, int size, int rank, const ReductionPlan& plan) {
  const ElementRange range = even_chunk(plan.elements_in(piece_bytes), size, rank, elements_per_cache_line(plan.type));
  return {range.begin * size_of(plan.type), range.count * size_of(plan.type)};
}

/// Reduces this rank's slice of a piece that all have put into their slots, within its own slot: nobody else reads
/// that part of it before the result is there.
void reduce_own_slice(const SharedRoom& room, std::uint64_t arrivals_ago, std::size_t piece_bytes,
                      const ReductionPlan& plan) {
  const CountedTime reducing(room.counters().reducing_ns);
  const Slice slice = slice_of(piece_bytes, room.size(), room.rank(), plan);
  std::byte* own = room.slot(room.rank(), arrivals_ago);
  std::vector<const std::byte*> sources = contributions(room, arrivals_ago, own);
  for (const std::byte*& source : sources) source += slice.begin;
  reduce(own + slice.begin, sources, plan.elements_in(slice.size), plan.type, plan.operation, plan.scaling);
}

/// Puts this rank's contribution to a piece into the slot of its next arrival.
void copy_in(const SharedRoom& room, std::span<const std::byte> piece) {
  const CountedTime copying(room.counters().copying_ns);
  copy_for_others(room.slot(room.rank(), 0), piece.data(), piece.size());
}

void copy_slices_out(const SharedRoom& room, std::uint64_t arrivals_ago, std::span<std::byte> piece,
                     const ReductionPlan& plan) {
  const CountedTime copying(room.counters().copying_ns);
  for (int r = 0; r < room.size(); ++r) {
    const Slice slice = slice_of(piece.size(), room.size(), r, plan);
    copy_bytes(piece.data() + slice.begin, room.slot(r, arrivals_ago) + slice.begin, slice.size);
  }
}

void pipeline_private(SharedRoom& room, std::span<std::byte> buffer, std::size_t piece_bytes,
                      const ReductionPlan& plan) {
  const std::size_t pieces = (buffer.size() + piece_bytes - 1) / piece_bytes;
  for (std::size_t t = 0; t <= pieces; ++t) {
    if (t < pieces) {
      copy_in(room, piece_of(buffer, t, piece_bytes));
      room.arrive();
    }
    // The piece before: its arrival is the last but one, or the last after the end. Arriving first gives the others
    // the time of a reduction to come.
    if (t > 0) {
      const CountedTime reducing(room.counters().reducing_ns);
      reduce_privately(room, t < pieces ? 2 : 1, piece_of(buffer, t - 1, piece_bytes), plan);
    }
    if (t < pieces) room.wait();
  }
}

void pipeline_sliced(SharedRoom& room, std::span<std::byte> buffer, std::size_t piece_bytes,
                     const ReductionPlan& plan) {
  const std::size_t pieces = (buffer.size() + piece_bytes - 1) / piece_bytes;
  for (std::size_t t = 0; t < pieces + 2; ++t) {
    if (t < pieces) copy_in(room, piece_of(buffer, t, piece_bytes));
    if (t >= 1 && t <= pieces) reduce_own_slice(room, 1, piece_of(buffer, t - 1, piece_bytes).size(), plan);
    if (t >= 2) copy_slices_out(room, 2, piece_of(buffer, t - 2, piece_bytes), plan);
    if (t <= pieces) room.arrive_and_wait();
  }
}

}  // namespace

void allreduce_by_mailbox(SharedRoom& room, std::span<std::byte> buffer, const ReductionPlan& plan) {
  GYRE_CHECK(buffer.size() <= kSlotBytes);
  copy_for_others(room.slot(room.rank(), 0), buffer.data(), buffer.size());
  room.arrive_and_wait();
  reduce_privately(room, 1, buffer, plan);
}

void allreduce_by_pipeline(SharedRoom& room, std::span<std::byte> buffer, const ReductionPlan& plan) {
  if (room.size() <= 2) {
    pipeline_private(room, buffer, kSlotBytes, plan);
  } else {
    pipeline_sliced(room, buffer, kSlotBytes, plan);
  }
}

std::vector<std::byte*> places_in_arenas(const SharedRoom& room, std::size_t offset_bytes, std::size_t size_bytes) {
  std::vector<std::byte*> places;
  for (int r = 0; r < room.size(); ++r) {
    places.push_back(room.layout().arena(r).subspan(offset_bytes, size_bytes).data());
  }
  return places;
}

void allreduce_in_places(SharedRoom& room, std::vector<std::byte*> places, std::size_t size_bytes,
                         const ReductionPlan& plan) {
  const Slice slice = slice_of(size_bytes, room.size(), room.rank(), plan);
  for (std::byte*& place : places) place += slice.begin;
  {
    const CountedTime reducing(room.counters().reducing_ns);
    const std::vector<const std::byte*> sources(places.begin(), places.end());
    reduce_to_many(places, sources, plan.elements_in(slice.size), plan.type, plan.operation, plan.scaling);
  }
  room.arrive_and_wait();
}

}  // namespace gyre::collectives::internal
