#pragma once

#include <cstddef>
#include <cstdint>

#include "gyre/base/clock.h"
#include "gyre/collectives/internal/shared/shared_room.h"

namespace gyre::collectives::internal {

/// How a rank writes the pieces of a collective into its slots: through the cache or around it. Which is faster depends
/// on what the ranks' cores share. If it is a cache, the reader finds the piece there. If not, every line has to be
/// fetched from the writer's cache, which takes twice as long as reading memory. A virtual machine shows neither this
/// nor when it changes, so it is tried from time to time: four collectives of one kind are written in turns in either
/// way. The host's first rank times them, and writes what is faster into the segment, as a hint: the ranks need
/// not agree about it.
///
/// Made by all ranks of the host for each collective that moves data.
class SlotWriting {
 public:
  /// `kind`: equal on all ranks; equal for two collectives only if they do the same work. 0: too little to time.
  SlotWriting(SharedRoom& room, std::uint64_t kind);

  /// Whether writing through the cache was faster in the last trial.
  static bool hint(const SharedRoom& room) {
    return room.layout().control().slots_through_cache.load(std::memory_order_relaxed) != 0;
  }

  bool through_cache() const { return through_cache_; }
  /// All ranks have written the first piece. (The wait for it says nothing about speed.)
  void begin() {
    if (trial_ != nullptr) begin_ = SteadyClock::now();
  }
  /// This rank has used the last piece.
  void end() {
    if (trial_ != nullptr) end_of_turn();
  }

 private:
  void end_of_turn();
  void decide() const;

  SharedRoom& room_;
  Trial* trial_ = nullptr;  // That this collective is part of.
  bool through_cache_;
  SteadyClock::time_point begin_;
};

}  // namespace gyre::collectives::internal
