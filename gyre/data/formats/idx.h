#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gyre::data {

/// The beginning of an IDX file (MNIST's format): an array of bytes.
struct IdxHeader {
  std::vector<std::uint32_t> shape;  ///< 1 to 4 extents; the first counts the items.
  std::size_t size_bytes = 0;        ///< Of the header.

  std::uint64_t item_bytes() const;
};

/// The most that a header takes.
inline constexpr std::size_t kMostIdxHeaderBytes = 20;

/// Whether a file begins like an IDX file.
bool is_idx(std::span<const std::byte> first);

/// From `first`, the first bytes of a file whose (uncompressed) contents have `contents_bytes`. Error(kCorruptData)
/// where that is no such file, or one of another length than its header says; kUnsupported for elements that are not
/// bytes. Source: http://yann.lecun.com/exdb/mnist/, "the IDX file format".
IdxHeader parse_idx(std::span<const std::byte> first, std::uint64_t contents_bytes, std::string_view name);

}  // namespace gyre::data
