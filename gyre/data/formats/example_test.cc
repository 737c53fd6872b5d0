// Records are written by TensorFlow, by others' encoders, and by broken disks: values come back exactly, or as an
// error.
#include "gyre/data/formats/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::data {
namespace {

using testing::ElementsAre;

std::vector<float> floats_of(const Example& example, std::string_view name, std::size_t count) {
  std::vector<float> values(count);
  const Feature* const feature = example.find(name);
  return feature != nullptr && feature->copy_floats(values) ? values : std::vector<float>{};
}

std::vector<std::int64_t> ints_of(const Example& example, std::string_view name, std::size_t count) {
  std::vector<std::int64_t> values(count);
  const Feature* const feature = example.find(name);
  return feature != nullptr && feature->copy_ints(values) ? values : std::vector<std::int64_t>{};
}

Bytes three_features() {
  ExampleWriter writer;
  writer.add_bytes("image", as_bytes("pixels"));
  writer.add_floats("y", std::array{0.5F, -1.0F});
  writer.add_ints("label", std::array<std::int64_t, 3>{7, -1, std::int64_t{1} << 40});
  return writer.take();
}

/// One field by hand: number, wire type 2, contents.
Bytes message(std::uint32_t number, std::initializer_list<Bytes> parts) {
  Bytes contents;
  for (const Bytes& part : parts) contents.insert(contents.end(), part.begin(), part.end());
  ProtobufWriter writer;
  writer.bytes_field(number, contents);
  return writer.take();
}

Bytes entry(std::string_view name, const Bytes& feature) {
  return message(1, {message(1, {Bytes(as_bytes(name).begin(), as_bytes(name).end())}), message(2, {feature})});
}

TEST(Example, values_of_all_kinds_come_back) {
  const Bytes bytes = three_features();
  const Example example(bytes);
  EXPECT_THAT(example.names(), ElementsAre("image", "y", "label"));
  ASSERT_NE(example.find("image"), nullptr);
  EXPECT_EQ(example.find("image")->kind(), FeatureKind::kBytes);
  EXPECT_EQ(as_text(example.find("image")->bytes().at(0)), "pixels");
  EXPECT_THAT(floats_of(example, "y", 2), ElementsAre(0.5F, -1.0F));
  EXPECT_THAT(ints_of(example, "label", 3), ElementsAre(7, -1, std::int64_t{1} << 40));
  EXPECT_EQ(example.find("missing"), nullptr);
}

TEST(Example, a_count_that_is_another_one_is_no_value) {
  const Bytes bytes = three_features();
  const Example example(bytes);
  EXPECT_TRUE(floats_of(example, "y", 1).empty());
  EXPECT_TRUE(floats_of(example, "y", 3).empty());
  EXPECT_TRUE(ints_of(example, "label", 2).empty());
  EXPECT_TRUE(ints_of(example, "label", 4).empty());
}

TEST(Example, lists_that_are_not_packed_count_too) {
  ProtobufWriter floats;
  floats.float_field(1, 1.5F);
  floats.float_field(1, 2.5F);
  ProtobufWriter ints;
  ints.varint_field(1, 3);
  ints.varint_field(1, static_cast<std::uint64_t>(-4));
  const Bytes bytes = message(1, {entry("y", message(2, {floats.take()})), entry("label", message(3, {ints.take()}))});
  const Example example(bytes);
  EXPECT_THAT(floats_of(example, "y", 2), ElementsAre(1.5F, 2.5F));
  EXPECT_THAT(ints_of(example, "label", 2), ElementsAre(3, -4));
}

TEST(Example, of_a_name_that_comes_twice_the_last_one_counts) {
  ProtobufWriter first;
  first.varint_field(1, 1);
  ProtobufWriter second;
  second.varint_field(1, 2);
  const Bytes bytes =
      message(1, {entry("label", message(3, {first.take()})), entry("label", message(3, {second.take()}))});
  EXPECT_THAT(ints_of(Example(bytes), "label", 1), ElementsAre(2));
}

TEST(Example, a_list_in_two_pieces_is_one_list_and_another_kind_replaces_it) {
  ProtobufWriter first;
  first.varint_field(1, 1);
  ProtobufWriter second;
  second.varint_field(1, 2);
  Bytes feature = message(3, {first.take()});
  const Bytes more = message(3, {second.take()});
  feature.insert(feature.end(), more.begin(), more.end());
  const Bytes both = message(1, {entry("label", feature)});
  EXPECT_THAT(ints_of(Example(both), "label", 2), ElementsAre(1, 2));
  const Bytes text = message(1, {});
  feature.insert(feature.end(), text.begin(), text.end());
  const Bytes replaced = message(1, {entry("label", feature)});
  EXPECT_EQ(Example(replaced).find("label")->kind(), FeatureKind::kBytes);
}

TEST(Example, unknown_fields_are_passed_over) {
  ProtobufWriter unknown;
  unknown.varint_field(9, 5);
  unknown.double_field(10, 1.0);
  unknown.bytes_field(11, as_bytes("future"));
  Bytes bytes = unknown.take();
  const Bytes known = three_features();
  bytes.insert(bytes.end(), known.begin(), known.end());
  EXPECT_THAT(floats_of(Example(bytes), "y", 2), ElementsAre(0.5F, -1.0F));
}

TEST(Example, an_empty_message_has_no_features) { EXPECT_TRUE(Example(std::span<const std::byte>()).names().empty()); }

// Each cut either ends a field, and what is left is a message, or it is an error; nothing reads past the end.
TEST(Example, every_cut_is_an_error_or_a_shorter_message) {
  const Bytes good = three_features();
  int errors = 0;
  for (std::size_t size = 1; size < good.size(); ++size) {
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    try {
      const Example example(cut);
      for (const auto name : example.names()) static_cast<void>(example.find(name)->bytes());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
      ++errors;
    }
  }
  EXPECT_EQ(errors, static_cast<int>(good.size()) - 1) << "one length in front covers everything";
}

TEST(Example, what_is_no_protobuf_is_an_error) {
  for (const std::string_view text : {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x03", "\x04", "\x0f"}) {
    EXPECT_THROW(Example{as_bytes(text)}, Error) << text.size();
  }
}

}  // namespace
}  // namespace gyre::data
