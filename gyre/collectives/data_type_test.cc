// The numbers of types and operations travel between ranks of different builds; their names are what people type.
#include "gyre/collectives/data_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gyre/base/error.h"

namespace gyre::collectives {
namespace {

TEST(data_type, numbers_sizes_and_names_are_stable) {
  struct Row {
    DataType type;
    int number;
    std::size_t size_bytes;
    std::string_view name;
  };
  const Row rows[] = {
      {DataType::kUint8, 0, 1, "uint8"},       {DataType::kInt8, 1, 1, "int8"},
      {DataType::kInt16, 2, 2, "int16"},       {DataType::kInt32, 3, 4, "int32"},
      {DataType::kInt64, 4, 8, "int64"},       {DataType::kFloat16, 5, 2, "float16"},
      {DataType::kBfloat16, 6, 2, "bfloat16"}, {DataType::kFloat32, 7, 4, "float32"},
      {DataType::kFloat64, 8, 8, "float64"},   {DataType::kBoolean, 9, 1, "bool"},
  };
  EXPECT_EQ(all_data_types().size(), std::size(rows));
  for (const Row& row : rows) {
    EXPECT_EQ(static_cast<int>(row.type), row.number);
    EXPECT_EQ(size_of(row.type), row.size_bytes) << row.name;
    EXPECT_EQ(name(row.type), row.name);
    EXPECT_EQ(data_type_from_number(static_cast<std::uint8_t>(row.number)), row.type);
  }
}

TEST(data_type, operations_have_stable_numbers_and_names) {
  const std::string_view names[] = {"sum", "average", "min", "max", "product"};
  ASSERT_EQ(all_reduce_operations().size(), std::size(names));
  for (std::size_t number = 0; number < std::size(names); ++number) {
    const auto operation = static_cast<ReduceOperation>(number);
    EXPECT_EQ(all_reduce_operations()[number], operation);
    EXPECT_EQ(name(operation), names[number]);
    EXPECT_EQ(reduce_operation_from_number(static_cast<std::uint8_t>(number)), operation);
  }
}

TEST(data_type, wire_formats_have_stable_numbers_and_names) {
  const std::string_view names[] = {"native", "bfloat16", "float16"};
  ASSERT_EQ(all_wire_formats().size(), std::size(names));
  for (std::size_t number = 0; number < std::size(names); ++number) {
    const auto format = static_cast<WireFormat>(number);
    EXPECT_EQ(all_wire_formats()[number], format);
    EXPECT_EQ(name(format), names[number]);
    EXPECT_EQ(parse_wire_format(names[number]), format);
  }
}

TEST(data_type, an_unknown_name_is_answered_with_the_names_there_are) {
  try {
    parse_wire_format("float8");
    FAIL() << "float8 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("'float8'"), testing::HasSubstr("bfloat16, float16")));
  }
  EXPECT_THROW(parse_wire_format(""), Error);
}

TEST(data_type, a_number_that_a_peer_made_up_is_no_type) {
  EXPECT_EQ(data_type_from_number(10), std::nullopt);
  EXPECT_EQ(data_type_from_number(255), std::nullopt);
  EXPECT_EQ(reduce_operation_from_number(5), std::nullopt);
}

TEST(data_type, four_types_are_floating_point) {
  for (const DataType type : all_data_types()) {
    EXPECT_EQ(is_floating_point(type), name(type).find("float") != std::string_view::npos) << name(type);
  }
}

}  // namespace
}  // namespace gyre::collectives
