#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "gyre/base/file.h"
#include "gyre/base/fork.h"

namespace gyre::net {

/// Memory that several processes of one host share: an anonymous memory file, so nothing is left
/// behind, whichever process dies, and however. Zero-filled, page-aligned. The mapping lives as long as the object.
/// Forks of a member of a group do not share it: see gyre/base/fork.h.
class Segment {
 public:
  /// Reserves the pages, so that a lack of memory is Error(kResourceExhausted) here and not a signal later.
  static std::shared_ptr<Segment> create(std::size_t size_bytes);
  /// Maps what another process created. Error(kProtocol) when it is smaller than `size_bytes`.
  static std::shared_ptr<Segment> map(UniqueFd descriptor, std::size_t size_bytes);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  int descriptor() const { return descriptor_.get(); }

 private:
  Segment(UniqueFd descriptor, std::span<std::byte> bytes);

  UniqueFd descriptor_;
  std::span<std::byte> bytes_;
  PrivateInForks in_forks_;
};

}  // namespace gyre::net
