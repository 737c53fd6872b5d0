#pragma once

#include <cstddef>
#include <memory>

namespace gyre::net::internal {

/// Room for one batch of a connection's bytes, held only while there are any. Each thread keeps a few that nobody
/// holds, so that a thousand idle connections need no buffers and a busy one allocates none. Not thread-safe; may be
/// released by another thread than the one that took it.
class BatchBuffer {
 public:
  static constexpr std::size_t kBytes = std::size_t{132} * 1024;

  BatchBuffer() = default;
  ~BatchBuffer() { release(); }
  BatchBuffer(const BatchBuffer&) = delete;
  BatchBuffer& operator=(const BatchBuffer&) = delete;

  /// The room, of which nothing is set when it is taken. It stays the same until release().
  std::byte* take();
  void release();
  const std::byte* data() const { return room_.get(); }

 private:
  std::unique_ptr<std::byte[]> room_;
};

}  // namespace gyre::net::internal
