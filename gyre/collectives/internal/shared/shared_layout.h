#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gyre::collectives::internal {

// What lies where in a lane's segment. The ranks of one host map it all at once, zero-filled, and nobody is
// appointed to prepare it: zero is the right first value of every word, and the signature is written by whoever
// comes first (a compare-exchange; everybody else checks it).
//
//   control words          each written word on lines of its own
//   one rank line per rank written by that rank only
//   mailboxes              per rank kSlots slots of kSlotBytes, through which ordinary buffers pass
//   arenas                 per rank, whatever the segment has left
//
// The places of two ranks lie an odd number of pages and kStaggerBytes apart: at a power of two, loads and stores of
// one loop would alias in the low 12 bits of their addresses, which more than halves the bandwidth
// (measured: 4.9 against 11.8 GB/s, two ranks, 256 MB).

constexpr std::size_t kPageBytes = 4096;
/// Two cache lines: the prefetcher of common x86 processors fetches lines in such pairs.
constexpr std::size_t kControlLineBytes = 128;
/// Nine cache lines: the places of eight ranks then start at eight spread-out offsets within a page.
constexpr std::size_t kStaggerBytes = std::size_t{9} * 64;

/// A piece of a buffer on its way. 512 KB and 1 MB were no faster with two and four ranks (1 to 64 MB).
constexpr std::size_t kSlotBytes = std::size_t{256} * 1024;
/// Arrival number a uses slot a mod 3; SharedRoom says why three suffice.
constexpr std::size_t kSlots = 3;

/// A comparison that goes on over several collectives; SlotWriting's. Written and read by one rank.
struct Trial {
  std::atomic<std::uint64_t> moves;           ///< Collectives that could have been part of one, ever.
  std::atomic<std::uint64_t> kind;            ///< Of collectives that are part of this one; 0: none is on.
  std::atomic<std::uint64_t> done;            ///< How many were.
  std::atomic<std::uint64_t> shortest_ns[2];  ///< Around the cache; through it.
};

/// Written by one rank, read by those who wait for it and by reports.
struct alignas(kControlLineBytes) RankLine {
  std::atomic<std::uint64_t> collective;  ///< Number of the one it has entered last.
  std::atomic<std::uint64_t> arrivals;    ///< How often it has arrived at the barrier, ever.
  std::atomic<std::uint64_t> progress;    ///< Changes while it works for the others outside of this memory.
  std::atomic<std::uint32_t> spinning;    ///< 0: not yet looked; kSpin or kNeverSpin.
  // The next three are PeerMappings'.
  std::atomic<std::uint64_t> peer_mapped;  ///< The serial of the buffer it offers for this allreduce; 0: none.
  std::atomic<std::uint64_t> proof[2];     ///< What stands at the two ends of that buffer while it is mapped.
  std::atomic<std::uint64_t> outcome;      ///< Whether it could map what is new, and what it still offers.
  Trial trial;
};

struct ControlWords {
  alignas(kControlLineBytes) std::atomic<std::uint64_t> signature;
  alignas(kControlLineBytes) std::atomic<std::uint64_t> arrivals;             ///< Of all ranks together.
  alignas(kControlLineBytes) std::atomic<std::uint32_t> generation;           ///< Barriers completed; the futex.
  alignas(kControlLineBytes) std::atomic<std::uint32_t> sleepers;             ///< Ranks that may sleep on it.
  alignas(kControlLineBytes) std::atomic<std::uint32_t> slots_through_cache;  ///< 1: that is faster. SlotWriting's.
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "words shared between processes cannot have locks beside them");

/// Where everything is in one mapped segment. A view: cheap to make, owns nothing.
class SharedLayout {
 public:
  /// Checks the segment's signature or writes it. Error(kInvalidArgument) when the segment is too small,
  /// Error(kMismatch) when another rank laid it out for another number of ranks or another version of Gyre.
  SharedLayout(std::span<std::byte> segment, int local_size);

  static std::size_t segment_bytes_for(int local_size, std::size_t arena_bytes);

  int local_size() const { return local_size_; }
  ControlWords& control() const { return *reinterpret_cast<ControlWords*>(segment_.data()); }
  RankLine& line(int local_rank) const;
  /// One of a rank's mailbox slots, kSlotBytes long.
  std::byte* slot(int local_rank, std::size_t index) const;
  /// Empty when the segment has no room for arenas.
  std::span<std::byte> arena(int local_rank) const;

 private:
  std::span<std::byte> segment_;
  int local_size_;
  std::size_t arena_pages_;
};

}  // namespace gyre::collectives::internal
