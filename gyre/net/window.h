#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "gyre/base/fork.h"

namespace gyre::net {

/// Bytes of a segment at addresses of their own, so that code that has kept such an address (a view of a tensor, an
/// array over its memory) can go on seeing the values of one moment while the segment's bytes change. Costs an entry in
/// the page table and, once the values are kept, as much private memory as there are bytes, rounded up to pages.
///
/// Thread-safe, except that nobody may write these bytes, here or in the segment, during keep_values().
class Window {
 public:
  /// `shared` lies in one segment of this process; it need not start at a page. The window outlives the segment.
  /// Error(kResourceExhausted) when the kernel allows this process no further mapping.
  static std::shared_ptr<Window> over(std::span<std::byte> shared);

  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  /// The same addresses for the life of the window.
  std::span<std::byte> bytes() const { return bytes_; }

  /// From now on the window shows private memory that holds what it shows at this moment; the segment does not see what
  /// is written here any more. Error(kResourceExhausted) when there is no memory for it; then nothing has changed.
  void keep_values();

 private:
  Window(std::span<std::byte> pages, std::span<std::byte> bytes, PrivateInForks in_forks)
      : pages_(pages), bytes_(bytes), in_forks_(std::move(in_forks)) {}

  std::span<std::byte> pages_;  // What is mapped; empty for no bytes.
  std::span<std::byte> bytes_;  // Of them.
  PrivateInForks in_forks_;     // Until the pages are private here.
};

}  // namespace gyre::net
