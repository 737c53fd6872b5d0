#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gyre/base/bytes.h"

namespace gyre::params::internal {

/// Rows of one server's part of a table as they travel: their numbers there, ascending, each once, and then their
/// values.
class TableRows {
 public:
  TableRows() = default;
  TableRows(std::size_t count, std::size_t columns);

  std::size_t count() const { return count_; }
  std::span<std::uint32_t> numbers();
  std::span<const std::uint32_t> numbers() const;
  std::span<float> values();
  std::span<const float> values() const;
  std::span<std::byte> bytes() { return bytes_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  /// Error(kProtocol) unless the numbers are ascending and below `rows`.
  void check(std::uint64_t rows) const;

 private:
  std::size_t count_ = 0;
  Bytes bytes_;
};

/// Whole parts of tables travel in pieces of so many rows, one message after the other.
std::size_t rows_per_piece(std::size_t columns);

}  // namespace gyre::params::internal
