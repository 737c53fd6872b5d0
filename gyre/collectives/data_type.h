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
  kInt128 = 10,  ///< Only partial sums within a collective: no tensor has it, and no peer may name it.
};

/// How contributions of several ranks become one value. Numbers are stable, as above.
enum class ReduceOperation : std::uint8_t {
  kSum = 0,
  kAverage = 1,
  kMin = 2,
  kMax = 3,
  kProduct = 4,
};

/// In what form the elements of a reduction travel over links. Numbers are stable, as above.
enum class WireFormat : std::uint8_t {
  kNative = 0,    ///< As they are.
  kBfloat16 = 1,  ///< Half the bytes: float32's range, 8 bits of precision.
  kFloat16 = 2,   ///< Half the bytes: 11 bits of precision; what exceeds 65,504 on its way becomes infinity.
};

/// All that a tensor can have, in the order of their numbers.
std::span<const DataType> all_data_types();
std::span<const ReduceOperation> all_reduce_operations();
std::span<const WireFormat> all_wire_formats();

/// Bytes of one element.
std::size_t size_of(DataType type);

/// float16, bfloat16, float32 or float64.
bool is_floating_point(DataType type);

/// "float32", "bool", "average", "native": as people and scripts write them.
std::string_view name(DataType type);
std::string_view name(ReduceOperation operation);
std::string_view name(WireFormat format);

/// The inverse of name(). Error(kInvalidArgument) lists the names there are.
WireFormat parse_wire_format(std::string_view text);

/// For numbers that a peer sent: empty when there is no such entry.
std::optional<DataType> data_type_from_number(std::uint8_t number);
std::optional<ReduceOperation> reduce_operation_from_number(std::uint8_t number);

}  // namespace gyre::collectives
