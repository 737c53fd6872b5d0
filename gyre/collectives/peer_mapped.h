#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gyre/group/lane.h"

namespace gyre::collectives {

namespace internal {
class SharedRoom;
}

/// A buffer that the other ranks of this host may map for one allreduce: the beginning of a memory file without a name
/// that this process has mapped as shared, and that stays open, mapped and as large until the allreduce is done. Any
/// other file is as if no buffer were offered.
struct PeerMappedBuffer {
  std::uint32_t serial = 0;  ///< Of this rank and lane, for this file alone; 0: no buffer.
  int descriptor = -1;
  std::vector<std::uint32_t> alive{};  ///< Serials that may come again; all ranks unmap the other files.
};

/// The buffers of the ranks of a host that all of them have mapped, for one lane. Descriptors are exchanged once for
/// each set of buffers, over authenticated sockets (Group::exchange_descriptors); from then on an allreduce of them
/// reads each copy once and writes it once, in place. Nothing is written to a mapping before it was proved to be the
/// other rank's buffer (ADR 65). Whether all ranks offer a buffer is found out in each allreduce, in shared memory:
/// where one does not, or cannot map another's, they all copy. Owned by the thread that owns the lane.
class PeerMappings {
 public:
  /// From this size on, agreeing costs nothing compared with the exchange.
  static constexpr std::size_t kLeastBytes = std::size_t{256} * 1024;

  PeerMappings();
  ~PeerMappings();
  PeerMappings(const PeerMappings&) = delete;
  PeerMappings& operator=(const PeerMappings&) = delete;

  /// By local rank, where the buffers lie in this process, if all ranks offer theirs. All ranks have entered then; an
  /// arrival of all ranks must follow, whatever the outcome. Collective; buffers of one size.
  std::optional<std::vector<std::byte*>> agree(internal::SharedRoom& room, std::span<std::byte> buffer,
                                               const PeerMappedBuffer& own);

 private:
  struct Set;

  Set* find(const std::vector<std::uint64_t>& serials, std::size_t size_bytes);
  /// Whether this rank may offer the buffer. Looks at the file only if it is not mapped by the others already.
  bool offers(std::span<const std::byte> buffer, const PeerMappedBuffer& own, int local_rank) const;
  /// Maps what is new. Null, on all ranks, when it could not be done on one of them: no buffer is mapped any more then.
  Set* make(internal::SharedRoom& room, const std::vector<std::uint64_t>& serials, std::span<std::byte> buffer,
            const PeerMappedBuffer& own);
  /// The sets that all of this rank's buffers may come again of, one bit each.
  std::uint64_t sets_alive(const PeerMappedBuffer& own, int local_rank) const;

  std::vector<std::unique_ptr<Set>> sets_;  // The same on all ranks, apart from the addresses.
  bool possible_ = true;                    // The same on all ranks.
};

}  // namespace gyre::collectives
