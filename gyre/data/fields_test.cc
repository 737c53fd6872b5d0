// A value must reach the batch as the field says, to the last bit; a record that holds something else is an error by
// name.
#include "gyre/data/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::data {
namespace {

using testing::HasSubstr;

template <typename T>
std::vector<T> decoded(const Field& field, const Bytes& record) {
  const FieldDecoder decoder({field});
  std::vector<T> values(static_cast<std::size_t>(element_count(field)));
  EXPECT_EQ(decoder.sample_bytes(0), values.size() * sizeof(T));
  const std::array into = {std::as_writable_bytes(std::span(values))};
  FieldScratch scratch;
  StageTimes times;
  StageClock clock(times);
  decoder.decode(Example(record), {}, scratch, clock, into);
  return values;
}

template <typename T>
Bytes record_of_bytes(const std::vector<T>& values) {
  ExampleWriter writer;
  writer.add_bytes("x", std::as_bytes(std::span(values)));
  return writer.take();
}

std::string error_of(const Field& field, const Bytes& record) {
  try {
    const FieldDecoder decoder({field});
    Bytes values(decoder.sample_bytes(0));
    const std::array<std::span<std::byte>, 1> into = {values};
    FieldScratch scratch;
    StageTimes times;
    StageClock clock(times);
    decoder.decode(Example(record), {}, scratch, clock, into);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Field int16_field(ElementType type, std::uint64_t count, ValueTransform transform = ValueTransform::kNone) {
  return {.name = "x",
          .kind = FeatureKind::kBytes,
          .stored = ElementType::kInt16,
          .type = type,
          .shape = {count},
          .transform = transform};
}

TEST(Fields, int16_counts_stay_become_float_or_their_logarithm) {
  const std::vector<std::int16_t> counts = {0, 1, 7, 32'767, -1, -32'768};
  const Bytes record = record_of_bytes(counts);
  EXPECT_EQ(decoded<std::int16_t>(int16_field(ElementType::kInt16, 6), record), counts);
  const auto floats = decoded<float>(int16_field(ElementType::kFloat32, 6), record);
  const auto logs = decoded<float>(int16_field(ElementType::kFloat32, 6, ValueTransform::kLog1p), record);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    EXPECT_EQ(floats[i], static_cast<float>(counts[i]));
    const float expected = std::log1p(static_cast<float>(counts[i]));
    EXPECT_TRUE(logs[i] == expected || (std::isnan(logs[i]) && std::isnan(expected))) << counts[i];
  }
}

TEST(Fields, bfloat16_is_rounded_to_the_nearest_and_ties_to_even) {
  const auto narrow = [](float value) {
    ExampleWriter writer;
    writer.add_floats("x", std::array{value});
    const Field field{.name = "x", .kind = FeatureKind::kFloats, .type = ElementType::kBfloat16, .shape = {1}};
    return decoded<std::uint16_t>(field, writer.take()).front();
  };
  EXPECT_EQ(narrow(1.0F), 0x3f80);
  EXPECT_EQ(narrow(std::bit_cast<float>(0x3f808000U)), 0x3f80) << "a tie, down to even";
  EXPECT_EQ(narrow(std::bit_cast<float>(0x3f818000U)), 0x3f82) << "a tie, up to even";
  EXPECT_EQ(narrow(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(narrow(std::nanf(""))) << 16)));
  EXPECT_EQ(narrow(HUGE_VALF), 0x7f80);
}

TEST(Fields, floats_integers_and_bytes_arrive_as_they_were) {
  ExampleWriter writer;
  writer.add_floats("y", std::array{1.0F, 3.0F});
  writer.add_ints("label", std::array<std::int64_t, 1>{-5});
  writer.add_bytes("pixels", as_bytes("abc"));
  const Bytes record = writer.take();
  EXPECT_EQ(
      decoded<float>({.name = "y", .kind = FeatureKind::kFloats, .type = ElementType::kFloat32, .shape = {2}}, record),
      (std::vector{1.0F, 3.0F}));
  EXPECT_EQ(decoded<std::int64_t>(
                {.name = "label", .kind = FeatureKind::kInts, .type = ElementType::kInt64, .shape = {}}, record),
            std::vector<std::int64_t>{-5});
  EXPECT_EQ(decoded<float>({.name = "pixels", .type = ElementType::kFloat32, .shape = {3, 1}}, record),
            (std::vector{97.0F, 98.0F, 99.0F}));
}

TEST(Fields, a_record_that_holds_something_else_is_refused_by_the_fields_name) {
  const Bytes record = record_of_bytes(std::vector<std::int16_t>{1, 2});
  EXPECT_THAT(error_of(int16_field(ElementType::kInt16, 3), record),
              HasSubstr("field 'x': the record holds 4 bytes there; a field of the shape [3] of int16 needs 6"));
  Field other = int16_field(ElementType::kInt16, 2);
  other.name = "z";
  EXPECT_THAT(error_of(other, record), HasSubstr("field 'z': the record has no feature 'z'; it has: x"));
  EXPECT_THAT(
      error_of({.name = "x", .kind = FeatureKind::kFloats, .type = ElementType::kFloat32, .shape = {2}}, record),
      HasSubstr("holds bytes there, not floats"));
}

TEST(Fields, fields_that_cannot_be_are_refused_at_once) {
  const auto problem = [](const std::vector<Field>& fields) -> std::string {
    try {
      check_fields(fields);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(problem({int16_field(ElementType::kBfloat16, 1, ValueTransform::kLog1p)}), "none");
  EXPECT_THAT(problem({}), HasSubstr("at least one field"));
  EXPECT_THAT(problem({int16_field(ElementType::kInt16, 1), int16_field(ElementType::kInt16, 2)}),
              HasSubstr("two fields are called 'x'"));
  EXPECT_THAT(problem({int16_field(ElementType::kInt16, 0)}), HasSubstr("cannot have the shape [0]"));
  EXPECT_THAT(problem({int16_field(ElementType::kInt64, 1)}), HasSubstr("bytes (int16) cannot become int64"));
  EXPECT_THAT(problem({int16_field(ElementType::kInt16, 1, ValueTransform::kLog1p)}), HasSubstr("by log1p"));
  Field huge = int16_field(ElementType::kInt16, 1);
  huge.shape = {std::uint64_t{1} << 33, std::uint64_t{1} << 33};
  EXPECT_THAT(problem({huge}), HasSubstr("cannot have the shape"));
}

}  // namespace
}  // namespace gyre::data
