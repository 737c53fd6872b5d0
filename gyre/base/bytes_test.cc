// Everything that comes from a socket or a file is read through ByteReader: it must never look past the end.
#include "gyre/base/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "gyre/base/error.h"

namespace gyre {
namespace {

TEST(bytes, what_a_writer_wrote_a_reader_reads) {
  ByteWriter writer;
  writer.u8(0xFE);
  writer.u16(0xFEDC);
  writer.u32(0xFEDCBA98);
  writer.u64(0xFEDCBA9876543210);
  writer.text("four");
  const Bytes bytes = writer.take();
  EXPECT_EQ(bytes.size(), 1U + 2 + 4 + 8 + 4);
  ByteReader reader(bytes, "the test's bytes");
  EXPECT_EQ(reader.u8(), 0xFE);
  EXPECT_EQ(reader.u16(), 0xFEDC);
  EXPECT_EQ(reader.u32(), 0xFEDCBA98);
  EXPECT_EQ(reader.u64(), 0xFEDCBA9876543210);
  EXPECT_EQ(reader.text(4), "four");
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(bytes, integers_are_little_endian) {
  ByteWriter writer;
  writer.u32(0x01020304);
  EXPECT_EQ(as_text(writer.result()), std::string_view("\x04\x03\x02\x01"));
}

TEST(bytes, a_read_past_the_end_names_what_and_where_and_moves_nothing) {
  const Bytes bytes(3);
  ByteReader reader(bytes, "record 7 of a.tfrecord");
  reader.u8();
  try {
    reader.u32();
    FAIL() << "read past the end";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_STREQ(error.what(), "record 7 of a.tfrecord is cut short: 4 bytes needed at offset 1, 2 left");
  }
  EXPECT_EQ(reader.remaining(), 2U);
}

TEST(bytes, an_absurd_length_is_refused_without_overflow) {
  const Bytes bytes(8);
  ByteReader reader(bytes, "a frame");
  reader.u32();
  EXPECT_THROW(reader.bytes(std::numeric_limits<std::size_t>::max()), Error);
  EXPECT_THROW(reader.bytes(std::numeric_limits<std::size_t>::max() - 3), Error);
  EXPECT_TRUE(reader.bytes(4).size() == 4 && reader.bytes(0).empty());
}

TEST(bytes, sizes_are_shown_in_the_unit_that_people_would_choose) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(64 << 10), "64 KB");
  EXPECT_EQ(format_bytes(1536), "1.5 KB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1 MB");
  EXPECT_EQ(format_bytes((std::uint64_t{1} << 40) * 2048), "2048 TB");
}

}  // namespace
}  // namespace gyre
