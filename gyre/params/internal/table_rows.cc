#include "gyre/params/internal/table_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/error.h"

namespace gyre::params::internal {

TableRows::TableRows(std::size_t count, std::size_t columns)
    : count_(count), bytes_(count * (sizeof(std::uint32_t) + columns * sizeof(float))) {}

std::span<std::uint32_t> TableRows::numbers() { return {reinterpret_cast<std::uint32_t*>(bytes_.data()), count_}; }

std::span<const std::uint32_t> TableRows::numbers() const {
  return {reinterpret_cast<const std::uint32_t*>(bytes_.data()), count_};
}

std::span<float> TableRows::values() {
  const std::span<std::byte> values = std::span(bytes_).subspan(count_ * sizeof(std::uint32_t));
  return {reinterpret_cast<float*>(values.data()), values.size() / sizeof(float)};
}

std::span<const float> TableRows::values() const {
  const std::span<const std::byte> values = std::span(bytes_).subspan(count_ * sizeof(std::uint32_t));
  return {reinterpret_cast<const float*>(values.data()), values.size() / sizeof(float)};
}

void TableRows::check(std::uint64_t rows) const {
  const std::span<const std::uint32_t> numbers = this->numbers();
  const bool ascending = std::ranges::adjacent_find(numbers, std::ranges::greater_equal()) == numbers.end();
  if (ascending && (numbers.empty() || numbers.back() < rows)) return;
  throw Error(
      ErrorCode::kProtocol,
      fmt::format("{} rows of a part of {} rows came that are not ascending, or not in it", numbers.size(), rows));
}

std::size_t rows_per_piece(std::size_t columns) {
  constexpr std::size_t kValuesPerPiece = std::size_t{1} << 20;
  return std::max<std::size_t>(1, kValuesPerPiece / columns);
}

}  // namespace gyre::params::internal
