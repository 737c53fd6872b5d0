#include "gyre/collectives/internal/shared/shared_collectives.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/collectives/copy_bytes.h"
#include "gyre/collectives/internal/index_of.h"
#include "gyre/collectives/internal/shared/slot_writing.h"
#include "gyre/collectives/kernels.h"
#include "gyre/collectives/schedule/chunks.h"

namespace gyre::collectives::internal {
namespace {

/// Results from this size on are written around the cache. It saves reading the lines that are about to be overwritten,
/// a third of the traffic; shorter results are still in the cache when the caller uses them.
constexpr std::size_t kLeastAroundCacheBytes = std::size_t{512} * 1024;
/// Less takes too short a time to compare two ways of writing it.
constexpr std::size_t kLeastTimedBytes = std::size_t{16} * 1024;
/// In how many pieces a range goes at least, unless they were shorter than that: in the time of the first one nobody
/// reads, in that of the last one nobody writes.
constexpr std::size_t kFewestPieces = 8;
constexpr std::size_t kLeastPieceBytes = std::size_t{64} * 1024;

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

/// How long pieces are of a range of `size_bytes`, of which none may be longer than `most_bytes`.
std::size_t piece_bytes_for(std::size_t size_bytes, std::size_t most_bytes = kSlotBytes) {
  const std::size_t share = size_bytes / kFewestPieces / kCacheLineBytes * kCacheLineBytes;
  return std::clamp(share, std::min(kLeastPieceBytes, most_bytes), most_bytes);
}

/// What SlotWriting tells apart.
enum class Work : std::uint64_t { kBroadcast = 1, kAllgather = 2, kAllToAll = 3 };

std::uint64_t kind_of_work(Work work, std::size_t least_bytes, std::uint64_t amount) {
  return least_bytes < kLeastTimedBytes ? 0 : amount << 2 | static_cast<std::uint64_t>(work);
}

void write_slot(std::byte* slot, const std::byte* from, std::size_t size_bytes, bool through_cache) {
  if (through_cache) {
    copy_bytes(slot, from, size_bytes);
  } else {
    copy_for_others(slot, from, size_bytes);
  }
}

/// Writes a result of `size_bytes` in parts.
class ResultWriter {
 public:
  explicit ResultWriter(std::size_t size_bytes) : around_cache_(size_bytes >= kLeastAroundCacheBytes) {}

  void write(std::byte* to, const std::byte* from, std::size_t size_bytes) const {
    if (to == from) return;
    if (around_cache_) {
      copy_around_cache(to, from, size_bytes);
    } else {
      copy_bytes(to, from, size_bytes);
    }
  }

  /// A part that this rank has, which it also shows in its slot. `to` may be `from`.
  void write_and_show(std::byte* to, std::byte* slot, const std::byte* from, std::size_t size_bytes,
                      bool through_cache) const {
    if (!around_cache_ || to == from) {
      write_slot(slot, from, size_bytes, through_cache);
      write(to, from, size_bytes);
    } else if (through_cache) {
      copy_to_both(slot, to, from, size_bytes);
    } else {
      copy_around_to_both(slot, to, from, size_bytes);
    }
  }

 private:
  const bool around_cache_;
};

/// A slot cut into `count` compartments, after room for one cache line.
std::size_t compartment_bytes(int count) {
  const std::size_t room = kSlotBytes - kCacheLineBytes;
  return room / index_of(count) / kCacheLineBytes * kCacheLineBytes;
}

std::byte* compartment(std::byte* slot, int count, int index) {
  return slot + kCacheLineBytes + index_of(index) * compartment_bytes(count);
}

}  // namespace

void broadcast_shared(SharedRoom& room, std::span<std::byte> buffer, int root) {
  const std::size_t piece_bytes = piece_bytes_for(buffer.size());
  const std::size_t rounds = rounds_for(buffer.size(), piece_bytes);
  const ResultWriter result(buffer.size());
  SlotWriting slots(room, kind_of_work(Work::kBroadcast, buffer.size(), buffer.size()));
  // The root fills piece t while the others empty piece t-1.
  for (std::size_t t = 0; t <= rounds; ++t) {
    if (t < rounds && room.rank() == root) {
      const Piece piece = piece_of(buffer.size(), t, piece_bytes);
      write_slot(room.slot(root, 0), buffer.data() + piece.begin, piece.size, slots.through_cache());
    }
    if (t < rounds) room.arrive();
    if (t > 0 && room.rank() != root) {
      const Piece piece = piece_of(buffer.size(), t - 1, piece_bytes);
      result.write(buffer.data() + piece.begin, room.slot(root, t < rounds ? 2 : 1), piece.size);
    }
    if (t == rounds) break;
    room.wait();
    if (t == 0) slots.begin();
  }
  slots.end();
}

void allgather_shared(SharedRoom& room, std::span<const std::byte> own, std::span<const std::size_t> sizes_bytes,
                      std::span<std::byte> output) {
  const std::size_t longest = *std::max_element(sizes_bytes.begin(), sizes_bytes.end());
  const std::size_t piece_bytes = piece_bytes_for(longest);
  const std::size_t rounds = rounds_for(longest, piece_bytes);
  const std::vector<ElementRange> places = ragged_chunks(sizes_bytes);
  const ResultWriter result(output.size());
  SlotWriting slots(room, kind_of_work(Work::kAllgather, longest, output.size()));
  const auto place = [&](int rank) { return output.data() + places[index_of(rank)].begin; };
  // Each rank fills its slot with piece t, and empties the others' slots of piece t-1 before it waits.
  for (std::size_t t = 0; t <= rounds; ++t) {
    if (t < rounds) {
      const Piece mine = piece_of(own.size(), t, piece_bytes);
      result.write_and_show(place(room.rank()) + mine.begin, room.slot(room.rank(), 0), own.data() + mine.begin,
                            mine.size, slots.through_cache());
      room.arrive();
    }
    for (int r = 0; t > 0 && r < room.size(); ++r) {
      if (r == room.rank()) continue;
      const Piece piece = piece_of(sizes_bytes[index_of(r)], t - 1, piece_bytes);
      result.write(place(r) + piece.begin, room.slot(r, t < rounds ? 2 : 1), piece.size);
    }
    if (t == rounds) break;
    room.wait();
    if (t == 0) slots.begin();
  }
  slots.end();
}

namespace {

/// What to make of all ranks' contributions to elements of this rank's range: `count` of them, from `first` on.
using Combining = std::function<void(std::span<const std::byte* const> sources, std::size_t first, std::size_t count)>;

void reduce_scatter_with(SharedRoom& room, const ContributionCopy& copy, std::span<const std::size_t> sizes_bytes,
                         const ReductionPlan& plan, const Combining& combine) {
  const std::size_t longest = *std::max_element(sizes_bytes.begin(), sizes_bytes.end());
  const std::size_t piece_bytes = compartment_bytes(room.size());
  std::vector<const std::byte*> sources(index_of(room.size()));
  // In each round every rank gets a piece of its own range, so that all of them have something to reduce.
  for (std::size_t t = 0; t < rounds_for(longest, piece_bytes); ++t) {
    for (int r = 0; r < room.size(); ++r) {
      const Piece piece = piece_of(sizes_bytes[index_of(r)], t, piece_bytes);
      copy(compartment(room.slot(room.rank(), 0), room.size(), r), r, piece.begin, piece.size);
    }
    room.arrive_and_wait();
    const Piece mine = piece_of(sizes_bytes[index_of(room.rank())], t, piece_bytes);
    if (mine.size == 0) continue;
    for (int r = 0; r < room.size(); ++r) {
      sources[index_of(r)] = compartment(room.slot(r, 1), room.size(), room.rank());
    }
    combine(sources, plan.elements_in(mine.begin), plan.elements_in(mine.size));
  }
}

/// For contributions that follow each other in the order of the local ranks.
ContributionCopy copy_from(std::span<const std::byte> input, std::span<const std::size_t> sizes_bytes) {
  return [input, places = ragged_chunks(sizes_bytes)](std::byte* to, int owner, std::size_t begin, std::size_t size) {
    copy_for_others(to, input.data() + places[index_of(owner)].begin + begin, size);
  };
}

}  // namespace

void reduce_scatter_shared(SharedRoom& room, std::span<const std::byte> input, std::span<const std::size_t> sizes_bytes,
                           std::span<std::byte> output, const ReductionPlan& plan) {
  reduce_scatter_with(room, copy_from(input, sizes_bytes), sizes_bytes, plan,
                      [&](std::span<const std::byte* const> sources, std::size_t first, std::size_t count) {
                        reduce(output.data() + first * size_of(plan.type), sources, count, plan.type, plan.operation,
                               plan.scaling);
                      });
}

void add_up_shared(SharedRoom& room, std::span<const std::byte> input, std::span<const std::size_t> sizes_bytes,
                   std::span<std::byte> sums, const ReductionPlan& plan) {
  add_up_shared(room, copy_from(input, sizes_bytes), sizes_bytes, sums, plan);
}

void add_up_shared(SharedRoom& room, const ContributionCopy& copy, std::span<const std::size_t> sizes_bytes,
                   std::span<std::byte> sums, const ReductionPlan& plan) {
  reduce_scatter_with(room, copy, sizes_bytes, plan,
                      [&](std::span<const std::byte* const> sources, std::size_t first, std::size_t count) {
                        add_up(sums.data() + first * size_of(plan.sum_type), sources, count, plan);
                      });
}

namespace {

/// What a rank says in its slot's first line in the first round of an all-to-all: the others know only what they get.
struct Sending {
  std::uint64_t rounds;
  std::uint64_t piece_bytes;
};

/// One rank's side of an all-to-all. A slot has a compartment for each of the other ranks, in the order in which they
/// follow its owner; what a rank sends itself goes straight to its place.
class AllToAll {
 public:
  AllToAll(SharedRoom& room, std::span<const std::byte> input, std::span<const std::size_t> send_bytes,
           std::span<std::byte> output, std::span<const std::size_t> receive_bytes)
      : room_(room),
        input_(input),
        send_bytes_(send_bytes),
        from_places_(ragged_chunks(send_bytes)),
        output_(output),
        receive_bytes_(receive_bytes),
        to_places_(ragged_chunks(receive_bytes)),
        result_(output.size()),
        sendings_(index_of(room.size())) {
    std::size_t longest = 0;
    for (int r = 0; r < room.size(); ++r) {
      if (r != room.rank()) longest = std::max(longest, send_bytes[index_of(r)]);
    }
    const std::size_t piece_bytes = piece_bytes_for(longest, compartment_bytes(room.size() - 1));
    sendings_[index_of(room.rank())] = {rounds_for(longest, piece_bytes), piece_bytes};
  }

  /// Into the slot of the next arrival.
  void say_own_sending() const {
    std::memcpy(room_.slot(room_.rank(), 0), &sendings_[index_of(room_.rank())], sizeof(Sending));
  }
  /// Out of the slots of the last arrival. How many rounds there are in all.
  std::uint64_t hear_sendings() {
    std::uint64_t rounds = 0;
    for (int r = 0; r < room_.size(); ++r) {
      std::memcpy(&sendings_[index_of(r)], room_.slot(r, 1), sizeof(Sending));
      rounds = std::max(rounds, sendings_[index_of(r)].rounds);
    }
    return rounds;
  }

  /// Into the slot of the next arrival.
  void fill(std::uint64_t round, bool through_cache) const {
    for (int r = 0; r < room_.size(); ++r) {
      if (r == room_.rank()) continue;
      const Piece piece = piece_of(send_bytes_[index_of(r)], round, sendings_[index_of(room_.rank())].piece_bytes);
      write_slot(place_in(room_.slot(room_.rank(), 0), room_.rank(), r),
                 input_.data() + from_places_[index_of(r)].begin + piece.begin, piece.size, through_cache);
    }
  }

  /// Out of the others' slots of an arrival.
  void empty(std::uint64_t round, std::uint64_t arrivals_ago) const {
    for (int r = 0; r < room_.size(); ++r) {
      if (r == room_.rank()) continue;
      const Piece piece = piece_of(receive_bytes_[index_of(r)], round, sendings_[index_of(r)].piece_bytes);
      result_.write(output_.data() + to_places_[index_of(r)].begin + piece.begin,
                    place_in(room_.slot(r, arrivals_ago), r, room_.rank()), piece.size);
    }
  }

  /// What this rank sends itself.
  void keep() const {
    const std::size_t own = index_of(room_.rank());
    result_.write(output_.data() + to_places_[own].begin, input_.data() + from_places_[own].begin, send_bytes_[own]);
  }

 private:
  std::byte* place_in(std::byte* slot, int owner, int receiver) const {
    const int size = room_.size();
    return compartment(slot, size - 1, (receiver - owner - 1 + size) % size);
  }

  SharedRoom& room_;
  std::span<const std::byte> input_;
  std::span<const std::size_t> send_bytes_;
  std::vector<ElementRange> from_places_;
  std::span<std::byte> output_;
  std::span<const std::size_t> receive_bytes_;
  std::vector<ElementRange> to_places_;
  ResultWriter result_;
  std::vector<Sending> sendings_;  // By local rank; the others' once they are heard.
};

}  // namespace

void all_to_all_shared(SharedRoom& room, std::span<const std::byte> input, std::span<const std::size_t> send_bytes,
                       std::span<std::byte> output, std::span<const std::size_t> receive_bytes) {
  AllToAll exchange(room, input, send_bytes, output, receive_bytes);
  exchange.say_own_sending();
  exchange.fill(0, SlotWriting::hint(room));
  room.arrive();
  exchange.keep();
  room.wait();
  const std::uint64_t rounds = exchange.hear_sendings();
  if (rounds == 0) return;
  SlotWriting slots(room, kind_of_work(Work::kAllToAll, (rounds - 1) * kLeastPieceBytes, rounds));
  slots.begin();
  // Each rank fills its slot with piece t, and empties the others' slots of piece t-1 before it waits.
  for (std::uint64_t t = 1; t < rounds; ++t) {
    exchange.fill(t, slots.through_cache());
    room.arrive();
    exchange.empty(t - 1, 2);
    room.wait();
  }
  exchange.empty(rounds - 1, 1);
  slots.end();
}

}  // namespace gyre::collectives::internal
