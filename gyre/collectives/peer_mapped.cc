#include "gyre/collectives/peer_mapped.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "gyre/base/file.h"
#include "gyre/base/random.h"
#include "gyre/collectives/internal/shared/shared_room.h"

namespace gyre::collectives {

namespace {

/// Each has a bit in a rank's outcome, beside kMapped.
constexpr std::size_t kMostSets = 32;
constexpr std::uint64_t kMapped = std::uint64_t{1} << 63;

/// Whether a descriptor is memory, writable, at least as large, and without a name in any file system: nothing that
/// somebody else could have opened, and no data file, whichever number it has.
bool is_nameless_memory(int descriptor, std::size_t size_bytes) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink != 0) return false;
  if (status.st_size < 0 || static_cast<std::size_t>(status.st_size) < size_bytes) return false;
  struct statfs file_system{};
  if (::fstatfs(descriptor, &file_system) != 0 || file_system.f_type != TMPFS_MAGIC) return false;
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) == O_RDWR;
}

/// Another rank's file in this process.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping() {
    if (address_ != nullptr) ::munmap(address_, size_bytes_);
  }
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), size_bytes_(other.size_bytes_) {}
  Mapping& operator=(Mapping&&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(address_); }

  /// Empty when the file is not one that the other rank should have offered, or cannot be mapped.
  static Mapping of(const UniqueFd& file, std::size_t size_bytes) {
    Mapping mapping;
    if (!file || !is_nameless_memory(file.get(), size_bytes)) return mapping;
    void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (address == MAP_FAILED) return mapping;
    ::madvise(address, size_bytes, MADV_DONTFORK);  // A fork has no use for another rank's gradients.
    mapping.address_ = address;
    mapping.size_bytes_ = size_bytes;
    return mapping;
  }

 private:
  void* address_ = nullptr;
  std::size_t size_bytes_ = 0;
};

using Proof = std::array<std::uint64_t, 2>;

Proof random_proof() {
  Proof proof;
  fill_with_secure_random(std::as_writable_bytes(std::span(proof)));
  return proof;
}

/// The first and the last bytes of a buffer.
Proof ends_of(const std::byte* data, std::size_t size_bytes) {
  Proof ends;
  std::memcpy(ends.data(), data, sizeof(ends[0]));
  std::memcpy(&ends[1], data + size_bytes - sizeof(ends[1]), sizeof(ends[1]));
  return ends;
}

void put_ends(std::byte* data, std::size_t size_bytes, const Proof& ends) {
  std::memcpy(data, ends.data(), sizeof(ends[0]));
  std::memcpy(data + size_bytes - sizeof(ends[1]), &ends[1], sizeof(ends[1]));
}

/// While it lives, a proof stands at both ends of this rank's buffer, in the place of the gradients there.
class Marked {
 public:
  Marked(std::span<std::byte> buffer, const Proof& proof)
      : buffer_(buffer), before_(ends_of(buffer.data(), buffer.size())) {
    put_ends(buffer_.data(), buffer_.size(), proof);
  }
  ~Marked() { put_ends(buffer_.data(), buffer_.size(), before_); }
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;

 private:
  std::span<std::byte> buffer_;
  Proof before_;
};

}  // namespace

/// The buffers of one tensor on all ranks of the host.
struct PeerMappings::Set {
  std::vector<std::uint64_t> serials;  // By local rank.
  std::size_t size_bytes;
  std::vector<Mapping> mappings;  // By local rank; this rank's own is empty.

  /// Whether each mapping is the memory where that rank has put its proof, and no other file that was taken for it.
  bool is_proved(internal::SharedRoom& room) const {
    for (int r = 0; r < room.size(); ++r) {
      if (r == room.rank()) continue;
      const std::byte* data = mappings[static_cast<std::size_t>(r)].data();
      if (data == nullptr) return false;
      const internal::RankLine& line = room.layout().line(r);
      const Proof expected = {line.proof[0].load(std::memory_order_relaxed),
                              line.proof[1].load(std::memory_order_relaxed)};
      if (ends_of(data, size_bytes) != expected) return false;
    }
    return true;
  }
};

PeerMappings::PeerMappings() = default;
PeerMappings::~PeerMappings() = default;

std::optional<std::vector<std::byte*>> PeerMappings::agree(internal::SharedRoom& room, std::span<std::byte> buffer,
                                                           const PeerMappedBuffer& own) {
  internal::RankLine& line = room.layout().line(room.rank());
  line.peer_mapped.store(offers(buffer, own, room.rank()) ? own.serial : 0, std::memory_order_relaxed);
  room.arrive_and_wait();
  // Nobody writes these words again before all have made the next arrival.
  std::vector<std::uint64_t> serials;
  for (int r = 0; r < room.size(); ++r) {
    serials.push_back(room.layout().line(r).peer_mapped.load(std::memory_order_relaxed));
  }
  if (std::find(serials.begin(), serials.end(), 0) != serials.end()) return std::nullopt;
  Set* set = find(serials, buffer.size());
  if (set == nullptr) set = make(room, serials, buffer, own);
  if (set == nullptr) return std::nullopt;
  std::vector<std::byte*> places;
  for (int r = 0; r < room.size(); ++r) {
    places.push_back(r == room.rank() ? buffer.data() : set->mappings[static_cast<std::size_t>(r)].data());
  }
  return places;
}

bool PeerMappings::offers(std::span<const std::byte> buffer, const PeerMappedBuffer& own, int local_rank) const {
  if (!possible_ || own.serial == 0) return false;
  const bool known = std::ranges::any_of(sets_, [&](const std::unique_ptr<Set>& set) {
    return set->serials[static_cast<std::size_t>(local_rank)] == own.serial && set->size_bytes >= buffer.size();
  });
  return known || is_nameless_memory(own.descriptor, buffer.size());
}

PeerMappings::Set* PeerMappings::find(const std::vector<std::uint64_t>& serials, std::size_t size_bytes) {
  const auto found = std::find_if(sets_.begin(), sets_.end(), [&](const std::unique_ptr<Set>& set) {
    return set->serials == serials && set->size_bytes >= size_bytes;
  });
  return found == sets_.end() ? nullptr : found->get();
}

std::uint64_t PeerMappings::sets_alive(const PeerMappedBuffer& own, int local_rank) const {
  std::uint64_t alive = 0;
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    const std::uint64_t serial = sets_[i]->serials[static_cast<std::size_t>(local_rank)];
    if (std::find(own.alive.begin(), own.alive.end(), serial) != own.alive.end()) alive |= std::uint64_t{1} << i;
  }
  return alive;
}

PeerMappings::Set* PeerMappings::make(internal::SharedRoom& room, const std::vector<std::uint64_t>& serials,
                                      std::span<std::byte> buffer, const PeerMappedBuffer& own) {
  group::Lane& lane = room.lane();
  auto set = std::make_unique<Set>(Set{serials, buffer.size(), {}});
  for (const UniqueFd& file : lane.group().exchange_descriptors(lane.channel(), own.descriptor, lane.deadline())) {
    set->mappings.push_back(Mapping::of(file, buffer.size()));
  }
  internal::RankLine& line = room.layout().line(room.rank());
  std::uint64_t outcome = 0;
  {
    const Proof proof = random_proof();
    const Marked marked(buffer, proof);
    line.proof[0].store(proof[0], std::memory_order_relaxed);
    line.proof[1].store(proof[1], std::memory_order_relaxed);
    room.arrive_and_wait();
    if (set->is_proved(room)) outcome = kMapped | sets_alive(own, room.rank());
    line.outcome.store(outcome, std::memory_order_relaxed);
    room.arrive_and_wait();  // All have looked.
  }
  for (int r = 0; r < room.size(); ++r) {
    outcome &= room.layout().line(r).outcome.load(std::memory_order_relaxed);
  }
  room.arrive_and_wait();  // All buffers hold their gradients again.
  if (outcome == 0) {
    possible_ = false;
    sets_.clear();
    return nullptr;
  }
  std::vector<std::unique_ptr<Set>> kept;
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    if ((outcome >> i & 1U) != 0) kept.push_back(std::move(sets_[i]));
  }
  sets_ = std::move(kept);
  if (sets_.size() == kMostSets) sets_.erase(sets_.begin());
  sets_.push_back(std::move(set));
  return sets_.back().get();
}

}  // namespace gyre::collectives
