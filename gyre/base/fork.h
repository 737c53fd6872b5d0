#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <span>

// What a process does not hand on to its forks. A fork inherits every descriptor and every shared mapping: the worker
// of a data loader would keep the connections of its rank open after the rank has died, hold the port on which it
// listened, and write to the gradients of the parent.
//
// Nothing happens before let_go_in_forks(): a launcher's forks need what they inherit. A fork that executes another
// program needs none of this; descriptors are closed on exec.

namespace gyre {

/// From now on forks of this process close the descriptors and detach from the memory named below. Idempotent; called
/// when the process becomes a rank. Error(kResourceExhausted).
void let_go_in_forks();

/// For a socket, a pipe or a memory file. It is recognised by its device and inode, so that the note needs no removal:
/// it means nothing once the descriptor is closed, or names another file. Thread-safe.
void close_in_forks(int descriptor);

/// While it lives, a fork made by this thread keeps everything. For forks that execute another program at once and hand
/// descriptors to it.
class KeepAllInFork {
 public:
  KeepAllInFork();
  ~KeepAllInFork();
  KeepAllInFork(const KeepAllInFork&) = delete;
  KeepAllInFork& operator=(const KeepAllInFork&) = delete;
};

/// Notes pages that are mapped MAP_SHARED: in a fork they become private. A page shows what the parent has there until
/// the fork writes to it; the parent and the other processes that share it never see what the fork writes.
/// Thread-safe.
class PrivateInForks {
 public:
  PrivateInForks() = default;
  /// `pages` begin at `offset` of the file. With a descriptor that is not, or no longer, this file (-1), forks copy the
  /// pages. The caller calls end() before it unmaps them.
  PrivateInForks(std::span<std::byte> pages, int descriptor, off_t offset);
  /// Pages of an owner that closes `descriptor` before it unmaps them, as torch does with its storages: once the
  /// descriptor is not this file any more, the note means nothing, and forks leave the pages alone.
  static PrivateInForks while_open(std::span<std::byte> pages, int descriptor);
  /// Pages that alias `pages`, which lie in the pages of some other note: through the same descriptor.
  static PrivateInForks alias(std::span<std::byte> alias, std::span<const std::byte> pages);
  ~PrivateInForks() { end(); }
  PrivateInForks(PrivateInForks&& other) noexcept;
  PrivateInForks& operator=(PrivateInForks&& other) noexcept;
  PrivateInForks(const PrivateInForks&) = delete;
  PrivateInForks& operator=(const PrivateInForks&) = delete;

  void end();
  /// Calls `replace` while no fork can begin, and end() if it returns true.
  bool end_if(const std::function<bool()>& replace);

  struct Note;

 private:
  Note* note_ = nullptr;
};

}  // namespace gyre
