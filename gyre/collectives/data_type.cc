#include "gyre/collectives/data_type.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::collectives {
namespace {

struct TypeFacts {
  std::string_view name;
  std::size_t size_bytes;
};

constexpr std::array kTypes{
    DataType::kUint8,   DataType::kInt8,     DataType::kInt16,   DataType::kInt32,   DataType::kInt64,
    DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64, DataType::kBoolean,
};
// Indexed by the number of the type.
constexpr std::array<TypeFacts, kTypes.size() + 1> kTypeFacts{{
    {"uint8", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"float16", 2},
    {"bfloat16", 2},
    {"float32", 4},
    {"float64", 8},
    {"bool", 1},
    {"int128", 16},
}};

constexpr std::array kOperations{ReduceOperation::kSum, ReduceOperation::kAverage, ReduceOperation::kMin,
                                 ReduceOperation::kMax, ReduceOperation::kProduct};
constexpr std::array<std::string_view, kOperations.size()> kOperationNames{"sum", "average", "min", "max", "product"};

constexpr std::array kWireFormats{WireFormat::kNative, WireFormat::kBfloat16, WireFormat::kFloat16};
constexpr std::array<std::string_view, kWireFormats.size()> kWireFormatNames{"native", "bfloat16", "float16"};

const TypeFacts& facts(DataType type) {
  const auto number = static_cast<std::size_t>(type);
  GYRE_CHECK(number < kTypeFacts.size());
  return kTypeFacts[number];
}

template <typename Entry>
Entry parse_name(std::string_view text, std::string_view what, std::span<const Entry> entries) {
  std::string known;
  for (const Entry entry : entries) {
    if (name(entry) == text) return entry;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name(entry));
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a {}; there are: {}", text, what, known));
}

}  // namespace

std::span<const DataType> all_data_types() { return kTypes; }

std::span<const ReduceOperation> all_reduce_operations() { return kOperations; }

std::span<const WireFormat> all_wire_formats() { return kWireFormats; }

std::size_t size_of(DataType type) { return facts(type).size_bytes; }

bool is_floating_point(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBfloat16 || type == DataType::kFloat32 ||
         type == DataType::kFloat64;
}

std::string_view name(DataType type) { return facts(type).name; }

std::string_view name(ReduceOperation operation) {
  const auto number = static_cast<std::size_t>(operation);
  GYRE_CHECK(number < kOperationNames.size());
  return kOperationNames[number];
}

std::string_view name(WireFormat format) {
  const auto number = static_cast<std::size_t>(format);
  GYRE_CHECK(number < kWireFormatNames.size());
  return kWireFormatNames[number];
}

WireFormat parse_wire_format(std::string_view text) { return parse_name(text, "wire format", all_wire_formats()); }

std::optional<DataType> data_type_from_number(std::uint8_t number) {
  if (number >= kTypes.size()) return std::nullopt;
  return kTypes[number];
}

std::optional<ReduceOperation> reduce_operation_from_number(std::uint8_t number) {
  if (number >= kOperations.size()) return std::nullopt;
  return kOperations[number];
}

}  // namespace gyre::collectives
