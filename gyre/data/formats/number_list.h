#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gyre::data {

enum class NumberType {
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat32,
  kFloat64,
};

std::size_t size_bytes(NumberType type);
bool is_float(NumberType type);
std::string_view number_type_name(NumberType type);

/// Numbers of one type as they lie in memory, at any address, little-endian.
struct NumberList {
  std::span<const std::byte> values;
  NumberType type = NumberType::kInt64;
  std::vector<std::uint64_t> extents{};  ///< Of lists in lists, from outside; empty where they are not nested.

  std::size_t count() const { return values.size() / size_bytes(type); }
};

/// Writes the numbers to `into`, which has count() of them. Doubles are rounded to the nearest float.
void copy_numbers(const NumberList& numbers, std::span<float> into);
/// Of integers only. Error(kCorruptData) where one is above 2^63 - 1.
void copy_numbers(const NumberList& numbers, std::span<std::int64_t> into);

}  // namespace gyre::data
