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

/// What a rank lends to the ranks of its host for one allreduce: its buffer is the beginning of a file that this
/// process has mapped as shared, and that stays open, mapped and as large until the allreduce is done.
struct Lent {
  std::uint32_t serial = 0;  ///< Of this rank and lane, for this file alone; 0: nothing is lent.
  int descriptor = -1;
  std::vector<std::uint32_t> alive{};  ///< Serials that may come again; the others' files are let go by all ranks.
};

/// The buffers that the ranks of a host have lent to each other through one lane. A process maps the others' files once
/// (/proc/PID/fd); from then on an allreduce of them reads each copy once and writes it once, where it lies. Whether
/// all ranks lend is found out in each allreduce, in shared memory: where one does not, or cannot map what another
/// lends (other containers, other users), they all copy. Owned by the thread that owns the lane.
class LentMemory {
 public:
  /// From here on meeting costs nothing beside the exchange.
  static constexpr std::size_t kLeastBytes = std::size_t{256} * 1024;

  LentMemory();
  ~LentMemory();
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  /// By local rank, where the buffers lie in this process, if all ranks lend theirs. All ranks have entered then; an
  /// arrival of all ranks must follow, whatever the outcome. Collective; buffers of one size.
  std::optional<std::vector<std::byte*>> meet(internal::SharedRoom& room, std::span<std::byte> buffer, const Lent& own);

 private:
  struct Set;

  Set* find(const std::vector<std::uint64_t>& tokens, std::size_t size_bytes);
  /// Maps what is new. Null, on all ranks, when it could not be done on one of them: nothing is lent any more then.
  Set* make(internal::SharedRoom& room, const std::vector<std::uint64_t>& tokens, std::size_t size_bytes,
            const Lent& own);

  std::vector<std::unique_ptr<Set>> sets_;  // The same on all ranks, apart from the addresses.
  bool possible_ = true;                    // The same on all ranks.
};

}  // namespace gyre::collectives
