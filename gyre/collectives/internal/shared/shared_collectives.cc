#include "gyre/collectives/internal/shared/shared_collectives.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/collectives/copy_bytes.h"
#include "gyre/collectives/kernels.h"
#include "gyre/collectives/schedule/chunks.h"

namespace gyre::collectives::internal {
namespace {

std::size_t index_of(int rank) { return static_cast<std::size_t>(rank); }

std::size_t rounds_for(std::size_t size_bytes, std::size_t piece_bytes) {
  return (size_bytes + piece_bytes - 1) / piece_bytes;
}

/// What round `round` moves of a range of `size_bytes` that goes in pieces.
struct Piece {
  std::size_t begin;
  std::size_t size;
};

Piece piece_of(std::size_t size_bytes, std::size_t round, std::size_t piece_bytes) {
  const std::size_t begin = std::min(size_bytes, round * piece_bytes);
  return {begin, std::min(piece_bytes, size_bytes - begin)};
}

/// A slot cut into one compartment per rank, after room for one cache line.
std::size_t compartment_bytes(int size) {
  const std::size_t room = kSlotBytes - kCacheLineBytes;
  return room / index_of(size) / kCacheLineBytes * kCacheLineBytes;
}

std::byte* compartment(std::byte* slot, int size, int index) {
  return slot + kCacheLineBytes + index_of(index) * compartment_bytes(size);
}

}  // namespace

void broadcast_shared(SharedRoom& room, std::span<std::byte> buffer, int root) {
  const std::size_t rounds = rounds_for(buffer.size(), kSlotBytes);
  // The root fills piece t while the others empty piece t-1.
  for (std::size_t t = 0; t <= rounds; ++t) {
    if (t < rounds && room.rank() == root) {
      const Piece piece = piece_of(buffer.size(), t, kSlotBytes);
      copy_for_others(room.slot(root, 0), buffer.data() + piece.begin, piece.size);
    }
    if (t < rounds) room.arrive();
    if (t > 0 && room.rank() != root) {
      const Piece piece = piece_of(buffer.size(), t - 1, kSlotBytes);
      copy_bytes(buffer.data() + piece.begin, room.slot(root, t < rounds ? 2 : 1), piece.size);
    }
    if (t < rounds) room.wait();
  }
}

void allgather_shared(SharedRoom& room, std::span<const std::byte> own, std::span<const std::size_t> sizes_bytes,
                      std::span<std::byte> output) {
  const std::size_t longest = *std::max_element(sizes_bytes.begin(), sizes_bytes.end());
  const std::vector<ElementRange> places = ragged_chunks(sizes_bytes);
  for (std::size_t t = 0; t < rounds_for(longest, kSlotBytes); ++t) {
    const Piece mine = piece_of(own.size(), t, kSlotBytes);
    copy_for_others(room.slot(room.rank(), 0), own.data() + mine.begin, mine.size);
    room.arrive_and_wait();
    for (int r = 0; r < room.size(); ++r) {
      const Piece piece = piece_of(sizes_bytes[index_of(r)], t, kSlotBytes);
      const std::byte* from = r == room.rank() ? own.data() + piece.begin : room.slot(r, 1);
      std::byte* to = output.data() + places[index_of(r)].begin + piece.begin;
      copy_bytes(to, from, piece.size);
    }
  }
}

void reduce_scatter_shared(SharedRoom& room, std::span<const std::byte> input, std::span<const std::size_t> sizes_bytes,
                           std::span<std::byte> output, const ReductionPlan& plan) {
  const std::size_t longest = *std::max_element(sizes_bytes.begin(), sizes_bytes.end());
  const std::size_t piece_bytes = compartment_bytes(room.size());
  const std::vector<ElementRange> places = ragged_chunks(sizes_bytes);
  std::vector<const std::byte*> sources(index_of(room.size()));
  // In each round every rank gets a piece of its own range, so that all of them have something to reduce.
  for (std::size_t t = 0; t < rounds_for(longest, piece_bytes); ++t) {
    for (int r = 0; r < room.size(); ++r) {
      const Piece piece = piece_of(sizes_bytes[index_of(r)], t, piece_bytes);
      std::byte* to = compartment(room.slot(room.rank(), 0), room.size(), r);
      copy_for_others(to, input.data() + places[index_of(r)].begin + piece.begin, piece.size);
      scale_contribution(plan, {to, piece.size});
    }
    room.arrive_and_wait();
    const Piece mine = piece_of(output.size(), t, piece_bytes);
    if (mine.size == 0) continue;
    for (int r = 0; r < room.size(); ++r) {
      sources[index_of(r)] = compartment(room.slot(r, 1), room.size(), room.rank());
    }
    reduce(output.data() + mine.begin, sources, plan.elements_in(mine.size), plan.type, plan.operation, plan.scale);
  }
}

void all_to_all_shared(SharedRoom& room, std::span<const std::byte> input, std::span<const std::size_t> send_bytes,
                       std::span<std::byte> output, std::span<const std::size_t> receive_bytes) {
  const std::size_t piece_bytes = compartment_bytes(room.size());
  const std::vector<ElementRange> from_places = ragged_chunks(send_bytes);
  const std::vector<ElementRange> to_places = ragged_chunks(receive_bytes);
  // A rank knows its own sizes only: in the first round each says, in its slot's first line, how many rounds it needs.
  std::uint64_t rounds = rounds_for(*std::max_element(send_bytes.begin(), send_bytes.end()), piece_bytes);
  for (std::uint64_t t = 0; t < std::max<std::uint64_t>(rounds, 1); ++t) {
    std::byte* slot = room.slot(room.rank(), 0);
    std::memcpy(slot, &rounds, sizeof rounds);
    for (int r = 0; r < room.size(); ++r) {
      const Piece piece = piece_of(send_bytes[index_of(r)], t, piece_bytes);
      copy_for_others(compartment(slot, room.size(), r), input.data() + from_places[index_of(r)].begin + piece.begin,
                      piece.size);
    }
    room.arrive_and_wait();
    for (int r = 0; r < room.size(); ++r) {
      std::byte* theirs = room.slot(r, 1);
      const Piece piece = piece_of(receive_bytes[index_of(r)], t, piece_bytes);
      copy_bytes(output.data() + to_places[index_of(r)].begin + piece.begin,
                 compartment(theirs, room.size(), room.rank()), piece.size);
      std::uint64_t their_rounds = 0;
      std::memcpy(&their_rounds, theirs, sizeof their_rounds);
      if (t == 0) rounds = std::max(rounds, their_rounds);
    }
  }
}

}  // namespace gyre::collectives::internal
