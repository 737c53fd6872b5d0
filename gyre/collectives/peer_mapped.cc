#include "gyre/collectives/peer_mapped.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "gyre/base/file.h"
#include "gyre/collectives/internal/shared/shared_room.h"

namespace gyre::collectives {

namespace {

/// Each has a bit in a rank's outcome, beside kMapped.
constexpr std::size_t kMostSets = 32;
constexpr std::uint64_t kMapped = std::uint64_t{1} << 63;

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

  /// Empty when the file cannot be opened, or is not the file that the other rank should have offered.
  static Mapping of(std::uint32_t process, std::uint32_t descriptor, std::size_t size_bytes) {
    Mapping mapping;
    const UniqueFd file(::open(fmt::format("/proc/{}/fd/{}", process, descriptor).c_str(), O_RDWR | O_CLOEXEC));
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return mapping;
    if (status.st_size < 0 || static_cast<std::size_t>(status.st_size) < size_bytes) return mapping;
    void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (address == MAP_FAILED) return mapping;
    mapping.address_ = address;
    mapping.size_bytes_ = size_bytes;
    return mapping;
  }

 private:
  void* address_ = nullptr;
  std::size_t size_bytes_ = 0;
};

std::uint64_t token_of(const PeerMappedBuffer& buffer) {
  if (buffer.serial == 0 || buffer.descriptor < 0) return 0;
  return std::uint64_t{buffer.serial} << 32 | static_cast<std::uint32_t>(buffer.descriptor);
}

std::uint32_t serial_of(std::uint64_t token) { return static_cast<std::uint32_t>(token >> 32); }

}  // namespace

/// The buffers of one tensor on all ranks of the host.
struct PeerMappings::Set {
  std::vector<std::uint64_t> tokens;  // By local rank.
  std::size_t size_bytes;
  std::vector<Mapping> mappings;  // By local rank; this rank's own is empty.
};

PeerMappings::PeerMappings() = default;
PeerMappings::~PeerMappings() = default;

std::optional<std::vector<std::byte*>> PeerMappings::agree(internal::SharedRoom& room, std::span<std::byte> buffer,
                                                           const PeerMappedBuffer& own) {
  internal::RankLine& line = room.layout().line(room.rank());
  line.process.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_relaxed);
  line.peer_mapped.store(possible_ ? token_of(own) : 0, std::memory_order_relaxed);
  room.arrive_and_wait();
  // Nobody writes these words again before all have made the next arrival.
  std::vector<std::uint64_t> tokens;
  for (int r = 0; r < room.size(); ++r) {
    tokens.push_back(room.layout().line(r).peer_mapped.load(std::memory_order_relaxed));
  }
  if (std::find(tokens.begin(), tokens.end(), 0) != tokens.end()) return std::nullopt;
  Set* set = find(tokens, buffer.size());
  if (set == nullptr) set = make(room, tokens, buffer.size(), own);
  if (set == nullptr) return std::nullopt;
  std::vector<std::byte*> places;
  for (int r = 0; r < room.size(); ++r) {
    places.push_back(r == room.rank() ? buffer.data() : set->mappings[static_cast<std::size_t>(r)].data());
  }
  return places;
}

PeerMappings::Set* PeerMappings::find(const std::vector<std::uint64_t>& tokens, std::size_t size_bytes) {
  const auto found = std::find_if(sets_.begin(), sets_.end(), [&](const std::unique_ptr<Set>& set) {
    return set->tokens == tokens && set->size_bytes >= size_bytes;
  });
  return found == sets_.end() ? nullptr : found->get();
}

PeerMappings::Set* PeerMappings::make(internal::SharedRoom& room, const std::vector<std::uint64_t>& tokens,
                                      std::size_t size_bytes, const PeerMappedBuffer& own) {
  auto set = std::make_unique<Set>(Set{tokens, size_bytes, {}});
  std::uint64_t outcome = kMapped;
  for (int r = 0; r < room.size(); ++r) {
    const internal::RankLine& line = room.layout().line(r);
    const auto descriptor = static_cast<std::uint32_t>(tokens[static_cast<std::size_t>(r)]);
    if (r == room.rank()) {
      set->mappings.emplace_back();
      continue;
    }
    set->mappings.push_back(Mapping::of(line.process.load(std::memory_order_relaxed), descriptor, size_bytes));
    if (set->mappings.back().data() == nullptr) outcome = 0;
  }
  for (std::size_t i = 0; i < sets_.size() && outcome != 0; ++i) {
    const std::uint32_t serial = serial_of(sets_[i]->tokens[static_cast<std::size_t>(room.rank())]);
    if (std::find(own.alive.begin(), own.alive.end(), serial) != own.alive.end()) outcome |= std::uint64_t{1} << i;
  }
  room.layout().line(room.rank()).outcome.store(outcome, std::memory_order_relaxed);
  room.arrive_and_wait();
  for (int r = 0; r < room.size(); ++r) {
    outcome &= room.layout().line(r).outcome.load(std::memory_order_relaxed);
  }
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
