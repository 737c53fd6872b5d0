// A TFRecord file is either read exactly or refused with file, record and offset.
#include "gyre/data/formats/tfrecord.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::data {
namespace {

using testing::HasSubstr;

Bytes bytes_of(std::string_view text) { return {as_bytes(text).begin(), as_bytes(text).end()}; }

Bytes contents_of(std::initializer_list<std::string_view> payloads) {
  Bytes all;
  for (const std::string_view payload : payloads) {
    const Bytes record = framed_tfrecord(as_bytes(payload));
    all.insert(all.end(), record.begin(), record.end());
  }
  return all;
}

std::vector<std::string> payloads_of(const Bytes& contents) {
  std::vector<std::string> payloads;
  for (const RecordPlace& place : index_tfrecords(contents, "file")) {
    payloads.emplace_back(as_text(checked_payload(contents, place, "file", payloads.size())));
  }
  return payloads;
}

std::string error_of(const Bytes& contents) {
  try {
    static_cast<void>(payloads_of(contents));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    return error.what();
  }
  return "no error";
}

TEST(TfRecord, records_come_back_in_their_order) {
  EXPECT_EQ(payloads_of(contents_of({"one", "", "three"})), (std::vector<std::string>{"one", "", "three"}));
  EXPECT_EQ(payloads_of({}), std::vector<std::string>{});
}

TEST(TfRecord, a_frame_has_the_bytes_of_the_format) {
  // Length, its checksum, payload, its checksum; the checksums computed bit by bit from CRC-32C's definition.
  const std::string expected(
      "\x03\0\0\0\0\0\0\0"
      "\xb0\x99\x49\x0e"
      "abc"
      "\x6e\x57\xf1\x21",
      19);
  EXPECT_EQ(as_text(framed_tfrecord(as_bytes("abc"))), expected);
}

TEST(TfRecord, every_damaged_byte_is_found) {
  const Bytes good = contents_of({"some", "records", "here"});
  for (std::size_t i = 0; i < good.size(); ++i) {
    Bytes bad = good;
    bad[i] ^= std::byte{1};
    EXPECT_THAT(error_of(bad), HasSubstr("file: record ")) << "byte " << i;
  }
}

TEST(TfRecord, every_cut_is_found_and_located) {
  const Bytes good = contents_of({"some", "records"});
  const std::size_t first = contents_of({"some"}).size();
  for (std::size_t size = 1; size < good.size(); ++size) {
    if (size == first) continue;
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    const std::string where = size < first ? "record 0, which begins at byte 0" : "record 1, which begins at byte 20";
    EXPECT_THAT(error_of(cut), HasSubstr(where)) << size;
  }
}

TEST(TfRecord, a_length_beyond_the_file_is_refused_before_memory_is_taken) {
  ByteWriter length;
  length.u64(std::uint64_t{1} << 60);
  Bytes contents = framed_tfrecord(length.result());
  EXPECT_THAT(error_of(Bytes(contents.begin(), contents.begin() + 12)), HasSubstr("was cut off"));
}

TEST(TfRecord, compression_is_told_by_content_and_a_record_that_looks_compressed_is_a_record) {
  EXPECT_EQ(tfrecord_compression(contents_of({"some"})), Compression::kNone);
  EXPECT_EQ(tfrecord_compression(deflate(Compression::kGzip, contents_of({"some"}))), Compression::kGzip);
  EXPECT_EQ(tfrecord_compression(deflate(Compression::kZlib, contents_of({"some"}))), Compression::kZlib);
  // 0x088b1f bytes long: the file begins as gzip does.
  const Bytes looks_like_gzip = framed_tfrecord(Bytes(0x088b1f));
  EXPECT_EQ(sniff_compression(looks_like_gzip), Compression::kGzip);
  EXPECT_EQ(tfrecord_compression(looks_like_gzip), Compression::kNone);
}

TEST(TfRecord, a_file_that_is_something_else_says_so) {
  EXPECT_THAT(error_of(bytes_of("{\"this\": \"is JSON and no TFRecord\"}")),
              HasSubstr("damaged or is not a TFRecord file"));
}

}  // namespace
}  // namespace gyre::data
