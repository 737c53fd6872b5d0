#include "gyre/data/formats/number_list.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::data {
namespace {

template <typename Stored, typename Wanted>
void convert(std::span<const std::byte> values, std::span<Wanted> into) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    Stored value{};
    std::memcpy(&value, values.data() + i * sizeof(Stored), sizeof(value));
    if constexpr (std::is_integral_v<Wanted>) {
      if (!std::in_range<Wanted>(value)) {
        throw Error(ErrorCode::kCorruptData,
                    fmt::format("{} is more than the largest integer, {}", value, std::numeric_limits<Wanted>::max()));
      }
    }
    into[i] = static_cast<Wanted>(value);
  }
}

template <typename Wanted>
void convert_integers(const NumberList& numbers, std::span<Wanted> into) {
  switch (numbers.type) {
    case NumberType::kInt8: return convert<std::int8_t>(numbers.values, into);
    case NumberType::kUint8: return convert<std::uint8_t>(numbers.values, into);
    case NumberType::kInt16: return convert<std::int16_t>(numbers.values, into);
    case NumberType::kUint16: return convert<std::uint16_t>(numbers.values, into);
    case NumberType::kInt32: return convert<std::int32_t>(numbers.values, into);
    case NumberType::kUint32: return convert<std::uint32_t>(numbers.values, into);
    case NumberType::kInt64: return convert<std::int64_t>(numbers.values, into);
    case NumberType::kUint64: return convert<std::uint64_t>(numbers.values, into);
    case NumberType::kFloat32:
    case NumberType::kFloat64: break;
  }
  GYRE_CHECK(!is_float(numbers.type));
}

}  // namespace

std::size_t size_bytes(NumberType type) {
  switch (type) {
    case NumberType::kInt8:
    case NumberType::kUint8: return 1;
    case NumberType::kInt16:
    case NumberType::kUint16: return 2;
    case NumberType::kInt32:
    case NumberType::kUint32:
    case NumberType::kFloat32: return 4;
    case NumberType::kInt64:
    case NumberType::kUint64:
    case NumberType::kFloat64: return 8;
  }
  return 1;
}

std::string_view number_type_name(NumberType type) {
  switch (type) {
    case NumberType::kInt8: return "int8";
    case NumberType::kUint8: return "uint8";
    case NumberType::kInt16: return "int16";
    case NumberType::kUint16: return "uint16";
    case NumberType::kInt32: return "int32";
    case NumberType::kUint32: return "uint32";
    case NumberType::kInt64: return "int64";
    case NumberType::kUint64: return "uint64";
    case NumberType::kFloat32: return "float32";
    case NumberType::kFloat64: return "float64";
  }
  return "?";
}

bool is_float(NumberType type) { return type == NumberType::kFloat32 || type == NumberType::kFloat64; }

void copy_numbers(const NumberList& numbers, std::span<float> into) {
  GYRE_CHECK(into.size() == numbers.count());
  if (numbers.type == NumberType::kFloat32) {
    if (!into.empty()) std::memcpy(into.data(), numbers.values.data(), into.size_bytes());
  } else if (numbers.type == NumberType::kFloat64) {
    convert<double>(numbers.values, into);
  } else {
    convert_integers(numbers, into);
  }
}

void copy_numbers(const NumberList& numbers, std::span<std::int64_t> into) {
  GYRE_CHECK(into.size() == numbers.count());
  if (numbers.type == NumberType::kInt64) {
    if (!into.empty()) std::memcpy(into.data(), numbers.values.data(), into.size_bytes());
  } else {
    convert_integers(numbers, into);
  }
}

}  // namespace gyre::data
