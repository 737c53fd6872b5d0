#include "gyre/data/internal/arrow_column.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::data::internal {
namespace {

using Around = ArrowColumn::Around;
using Values = ArrowColumn::Values;

std::optional<NumberType> number_of(std::string_view format) {
  if (format.size() != 1) return std::nullopt;
  switch (format.front()) {
    case 'c': return NumberType::kInt8;
    case 'C': return NumberType::kUint8;
    case 's': return NumberType::kInt16;
    case 'S': return NumberType::kUint16;
    case 'i': return NumberType::kInt32;
    case 'I': return NumberType::kUint32;
    case 'l': return NumberType::kInt64;
    case 'L': return NumberType::kUint64;
    case 'f': return NumberType::kFloat32;
    case 'g': return NumberType::kFloat64;
    default: return std::nullopt;
  }
}

/// N of "w:N" or "+w:N".
std::optional<std::uint64_t> width_of(std::string_view format, std::string_view prefix) {
  if (!format.starts_with(prefix)) return std::nullopt;
  std::uint64_t width = 0;
  const char* const end = format.data() + format.size();
  const auto parsed = std::from_chars(format.data() + prefix.size(), end, width);
  if (parsed.ec != std::errc() || parsed.ptr != end || width > std::numeric_limits<std::int32_t>::max()) {
    return std::nullopt;
  }
  return width;
}

std::optional<ArrowColumn::Level> list_of(std::string_view format) {
  if (format == "+l") return ArrowColumn::Level{Around::kList};
  if (format == "+L") return ArrowColumn::Level{Around::kLargeList};
  if (const auto width = width_of(format, "+w:")) return ArrowColumn::Level{Around::kFixedList, *width};
  return std::nullopt;
}

/// Sets what the values of `column` are; false where we do not read them.
bool set_values(const ArrowSchema& schema, ArrowColumn& column) {
  std::string_view format = schema.format;
  if (schema.dictionary != nullptr) {
    column.index = number_of(format);
    format = schema.dictionary->format;
    if (!column.index || is_float(*column.index)) return false;
  }
  if (format == "z" || format == "u") {
    column.values = Values::kStrings;
  } else if (format == "Z" || format == "U") {
    column.values = Values::kLargeStrings;
  } else if (const auto width = width_of(format, "w:")) {
    column.values = Values::kFixedStrings;
    column.string_bytes = *width;
  } else if (column.index) {
    return false;  // Arrow restores dictionaries of strings only.
  } else if (format == "b") {
    column.values = Values::kBits;
  } else if (format == "e") {
    column.values = Values::kHalfFloats;
  } else if (const auto number = number_of(format)) {
    column.number = *number;
  } else {
    return false;
  }
  return true;
}

/// For messages: the formats that people meet.
std::string name_of(std::string_view format) {
  using Name = std::pair<std::string_view, std::string_view>;
  constexpr std::array kNames = {Name{"+m", "map"},       Name{"+s", "list of structs"},
                                 Name{"n", "null"},       Name{"ts", "timestamp"},
                                 Name{"td", "date"},      Name{"tt", "time"},
                                 Name{"tD", "duration"},  Name{"d:", "decimal"},
                                 Name{"v", "string view"}};
  for (const auto& [prefix, name] : kNames) {
    if (format.starts_with(prefix)) return std::string(name);
  }
  return fmt::format("'{}' of Arrow's C data interface", format);
}

std::uint64_t leaves_of(const ArrowSchema& schema) {
  if (schema.n_children == 0) return 1;
  std::uint64_t leaves = 0;
  for (std::int64_t i = 0; i < schema.n_children; ++i) leaves += leaves_of(*schema.children[i]);
  return leaves;
}

void list_column(const ArrowSchema& schema, const std::string& path, const ArrowColumn& around, ListedColumns& into) {
  if (std::string_view(schema.format) == "+s") {
    ArrowColumn inner = around;
    inner.levels.push_back({Around::kStruct});
    for (std::int64_t i = 0; i < schema.n_children; ++i) {
      const ArrowSchema& child = *schema.children[i];
      list_column(child, path + "." + (child.name == nullptr ? "" : child.name), inner, into);
    }
    return;
  }
  ArrowColumn column = around;
  const ArrowSchema* inner = &schema;
  while (const auto list = list_of(inner->format)) {
    if (inner->n_children != 1) break;
    column.levels.push_back(*list);
    inner = inner->children[0];
  }
  ListedColumn listed{.path = path, .leaf = into.leaves};
  if (inner->n_children == 0 && set_values(*inner, column)) {
    listed.type = std::move(column);
  } else {
    listed.type_name = name_of(inner->format);
  }
  into.leaves += leaves_of(schema);
  into.columns.push_back(std::move(listed));
}

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorCode::kCorruptData, fmt::format("its values are not laid out as its type says: {}", what));
}

void require(bool as_expected, const char* what) {
  if (!as_expected) refuse(what);
}

/// An array has a buffer for each of the first `least`, except the validity, which may be missing.
void check_buffers(const ArrowArray& array, std::int64_t least) {
  require(array.length >= 0 && array.offset >= 0, "a negative length");
  require(array.n_buffers == least, "the number of buffers");
  for (std::int64_t i = 1; i < least; ++i) {
    require(array.length == 0 || array.buffers[i] != nullptr, "a buffer is missing");
  }
}

void check_strings(const ArrowArray& array, Values values) {
  // Strings that are all empty need no bytes.
  if (values != Values::kFixedStrings) {
    require(array.length >= 0 && array.offset >= 0 && array.n_buffers == 3, "the number of buffers");
    require(array.length == 0 || array.buffers[1] != nullptr, "a buffer is missing");
    return;
  }
  check_buffers(array, 2);
}

template <typename T>
T at(const void* values, std::uint64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(values) + index * sizeof(T), sizeof(T));
  return value;
}

bool bit_at(const void* bits, std::uint64_t index) {
  return (at<std::uint8_t>(bits, index / 8) >> (index % 8) & 1) != 0;
}

/// Error where a value of the range, which begins behind the array's offset, is null.
void check_range(const ArrowArray& array, std::uint64_t first, std::uint64_t count) {
  const auto length = static_cast<std::uint64_t>(array.length);
  require(first <= length && count <= length - first, "a list reaches beyond its values");
  if (array.null_count == 0 || array.n_buffers == 0 || array.buffers[0] == nullptr) return;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!bit_at(array.buffers[0], static_cast<std::uint64_t>(array.offset) + first + i)) {
      throw Error(ErrorCode::kCorruptData,
                  "a value is null there, which no tensor can hold: fill or drop such rows before the file is written");
    }
  }
}

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
};

template <typename Offset>
Range range_at(const ArrowArray& array, std::uint64_t index) {
  const std::uint64_t place = static_cast<std::uint64_t>(array.offset) + index;
  const auto begin = at<Offset>(array.buffers[1], place);
  const auto end = at<Offset>(array.buffers[1], place + 1);
  // Arrow has compared the last one with the size of what it refers to.
  const auto last = at<Offset>(array.buffers[1], static_cast<std::uint64_t>(array.offset + array.length));
  require(begin >= 0 && begin <= end && end <= last, "an offset that is less than the one before it");
  return {static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)};
}

std::uint64_t index_at(const ArrowArray& array, NumberType type, std::uint64_t index) {
  const std::uint64_t place = static_cast<std::uint64_t>(array.offset) + index;
  std::array<std::int64_t, 1> value{};
  const auto bytes =
      std::span(static_cast<const std::byte*>(array.buffers[1]) + place * size_bytes(type), size_bytes(type));
  copy_numbers({.values = bytes, .type = type}, value);
  return static_cast<std::uint64_t>(value[0]);
}

float from_half(std::uint16_t half) {
  constexpr int kMantissaBits = 10;
  const int exponent = half >> kMantissaBits & 0x1f;
  const int mantissa = half & 0x3ff;
  float value = 0;
  if (exponent == 0x1f) {
    value = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    value = std::ldexp(static_cast<float>(mantissa | 0x400), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

}  // namespace

ListedColumns list_columns(const ArrowSchema& schema) {
  ListedColumns listed;
  for (std::int64_t i = 0; i < schema.n_children; ++i) {
    const ArrowSchema& child = *schema.children[i];
    list_column(child, child.name == nullptr ? "" : child.name, {}, listed);
  }
  return listed;
}

void check_layout(const ArrowArray& part, const ArrowColumn& type) {
  const ArrowArray* array = &part;
  for (const ArrowColumn::Level& level : type.levels) {
    check_buffers(*array, level.kind == Around::kList || level.kind == Around::kLargeList ? 2 : 1);
    require(array->n_children == 1 && array->children[0] != nullptr, "the number of columns within");
    array = array->children[0];
  }
  if (type.index) {
    check_buffers(*array, 2);
    require(array->dictionary != nullptr, "its dictionary is missing");
    array = array->dictionary;
  }
  switch (type.values) {
    case Values::kNumbers:
    case Values::kBits:
    case Values::kHalfFloats: check_buffers(*array, 2); break;
    case Values::kStrings:
    case Values::kLargeStrings:
    case Values::kFixedStrings: check_strings(*array, type.values); break;
  }
}

ArrowRow::ArrowRow(const ArrowArray& part, const ArrowColumn& type, std::uint64_t row)
    : type_(type), array_(&part), first_(row) {
  for (const ArrowColumn::Level& level : type_.levels) descend(level);
  check_range(*array_, first_, count_);
  if (extents_.size() < 2) extents_.clear();
  measure();
}

void ArrowRow::descend(const ArrowColumn::Level& level) {
  check_range(*array_, first_, count_);
  const auto offset = static_cast<std::uint64_t>(array_->offset);
  if (level.kind == Around::kStruct) {
    first_ += offset;
  } else if (level.kind == Around::kFixedList) {
    first_ = (first_ + offset) * level.length;
    count_ *= level.length;
    extents_.push_back(level.length);
  } else {
    const auto range = [&](std::uint64_t index) {
      return level.kind == Around::kList ? range_at<std::int32_t>(*array_, index)
                                         : range_at<std::int64_t>(*array_, index);
    };
    // There is always one list at least on the way to a value: lists of no lists have no lengths to compare.
    std::uint64_t length = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    for (std::uint64_t i = 0; i < count_; ++i) {
      const Range found = range(first_ + i);
      if (i == 0) {
        begin = found.begin;
        length = found.end - found.begin;
      }
      end = found.end;
      if (found.end - found.begin != length) {
        throw Error(ErrorCode::kCorruptData,
                    fmt::format("the lists within one value have {} and {} elements, and no tensor can hold both",
                                length, found.end - found.begin));
      }
    }
    first_ = begin;
    count_ = end - begin;
    extents_.push_back(length);
  }
  array_ = array_->children[0];
}

std::span<const std::byte> ArrowRow::string_at(std::uint64_t index) const {
  const ArrowArray* strings = array_;
  if (type_.index) {
    index = index_at(*array_, *type_.index, index);
    strings = array_->dictionary;
    check_range(*strings, index, 1);
  }
  if (type_.values == Values::kFixedStrings) {
    const auto* const bytes = static_cast<const std::byte*>(strings->buffers[1]);
    return {bytes + (static_cast<std::uint64_t>(strings->offset) + index) * type_.string_bytes, type_.string_bytes};
  }
  const Range range = type_.values == Values::kStrings ? range_at<std::int32_t>(*strings, index)
                                                       : range_at<std::int64_t>(*strings, index);
  if (range.begin == range.end) return {};
  require(strings->buffers[2] != nullptr, "a buffer is missing");
  return {static_cast<const std::byte*>(strings->buffers[2]) + range.begin, range.end - range.begin};
}

void ArrowRow::measure() {
  switch (type_.values) {
    case Values::kNumbers: bytes_ = count_ * size_bytes(type_.number); break;
    case Values::kBits: bytes_ = count_; break;
    case Values::kHalfFloats: bytes_ = count_ * sizeof(float); break;
    case Values::kStrings:
    case Values::kLargeStrings:
    case Values::kFixedStrings:
      for (std::uint64_t i = 0; i < count_; ++i) bytes_ += string_at(first_ + i).size();
  }
}

Feature ArrowRow::copy_strings(std::span<std::byte> into) const {
  std::vector<std::span<const std::byte>> strings;
  std::size_t used = 0;
  for (std::uint64_t i = 0; i < count_; ++i) {
    const auto string = string_at(first_ + i);
    const auto place = into.subspan(used, string.size());
    if (!string.empty()) std::memcpy(place.data(), string.data(), string.size());
    strings.emplace_back(place);
    used += string.size();
  }
  return Feature::of_strings(std::move(strings));
}

Feature ArrowRow::copy_to(std::span<std::byte> into) const {
  const std::uint64_t first = static_cast<std::uint64_t>(array_->offset) + first_;
  const auto as_numbers = [&](NumberType type) {
    return Feature::of_numbers({.values = into, .type = type, .extents = extents_});
  };
  switch (type_.values) {
    case Values::kNumbers: {
      const auto* const values = static_cast<const std::byte*>(array_->buffers[1]);
      if (!into.empty()) std::memcpy(into.data(), values + first * size_bytes(type_.number), into.size());
      return as_numbers(type_.number);
    }
    case Values::kBits:
      for (std::uint64_t i = 0; i < count_; ++i) into[i] = std::byte{bit_at(array_->buffers[1], first + i)};
      return as_numbers(NumberType::kUint8);
    case Values::kHalfFloats:
      for (std::uint64_t i = 0; i < count_; ++i) {
        const float value = from_half(at<std::uint16_t>(array_->buffers[1], first + i));
        std::memcpy(into.data() + i * sizeof(value), &value, sizeof(value));
      }
      return as_numbers(NumberType::kFloat32);
    case Values::kStrings:
    case Values::kLargeStrings:
    case Values::kFixedStrings: break;
  }
  return copy_strings(into);
}

}  // namespace gyre::data::internal
