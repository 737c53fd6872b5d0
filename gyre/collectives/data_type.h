#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gyre::collectives {

/// What a tensor's elements are. The numbers are stable: they travel on the wire and into files, so
/// entries are only ever added at the end.
enum class DataType : std::uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,   ///< IEEE 754 binary16.
  kBfloat16 = 6,  ///< The upper half of a float32.
  kFloat32 = 7,
  kFloat64 = 8,
  kBoolean = 9,  ///< One byte; zero is false, anything else is true; results are 0 or 1.
};

/// How contributions of several ranks become one value. Numbers are stable, as above.
enum class ReduceOperation : std::uint8_t {
  kSum = 0,
  kAverage = 1,
  kMin = 2,
  kMax = 3,
  kProduct = 4,
};

/// All of them, in the order of their numbers.
std::span<const DataType> all_data_types();
std::span<const ReduceOperation> all_reduce_operations();

/// Bytes of one element.
std::size_t size_of(DataType type);

/// float16, bfloat16, float32 or float64.
bool is_floating_point(DataType type);

/// "float32", "bool", "average": as people and scripts write them.
std::string_view name(DataType type);
std::string_view name(ReduceOperation operation);

/// The inverse of name(). Error(kInvalidArgument) lists the names there are.
DataType parse_data_type(std::string_view text);
ReduceOperation parse_reduce_operation(std::string_view text);

/// For numbers that a peer sent: empty when there is no such entry.
std::optional<DataType> data_type_from_number(std::uint8_t number);
std::optional<ReduceOperation> reduce_operation_from_number(std::uint8_t number);

}  // namespace gyre::collectives
