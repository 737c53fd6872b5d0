// Files larger than memory are gone through in pieces: these are the same bytes that an object inflated as a whole has,
// and the same errors.
#include "gyre/data/formats/inflate_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/data/formats/tfrecord.h"
#include "gyre/data/tar_test_support.h"

namespace gyre::data {
namespace {

using ::testing::HasSubstr;
using testing::MemoryFile;

MemoryFile file_of(const Bytes& stored) { return {"file", std::string(as_text(stored))}; }

Bytes counts(std::size_t size) {
  Random random(5);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(4));
  return bytes;
}

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// The contents, asked for in pieces of that size.
Bytes streamed(const Bytes& stored, std::size_t piece_bytes) {
  const MemoryFile file = file_of(stored);
  InflateStream stream(file, sniff_compression(stored));
  Bytes all;
  Bytes piece(piece_bytes);
  for (std::size_t count = piece.size(); count == piece.size();) {
    count = stream.read(piece);
    all.insert(all.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(count));
  }
  EXPECT_EQ(stream.read(piece), 0U);
  return all;
}

std::string error_of(const Bytes& stored) {
  try {
    static_cast<void>(streamed(stored, 777));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of_whole(const Bytes& stored) {
  Inflater inflater;
  ScratchBuffer buffer;
  try {
    static_cast<void>(inflater.inflate(sniff_compression(stored), stored, std::uint64_t{1} << 30, "file", buffer));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(InflateStream, pieces_of_any_size_add_up_to_what_was_compressed) {
  for (const std::size_t size : {0U, 1U, 100U, 65'536U, 3'000'000U}) {
    const Bytes contents = counts(size);
    for (const Compression compression : {Compression::kGzip, Compression::kZlib}) {
      const Bytes stored = deflate(compression, contents);
      for (const std::size_t piece : {13U, 4'096U, 1U << 20}) {
        if (size > 1'000'000 && piece < 100) continue;
        EXPECT_EQ(streamed(stored, piece), contents) << size << " in pieces of " << piece;
      }
    }
  }
}

// Headers and trailers then lie across the pieces in which the file is read, at every offset.
TEST(InflateStream, members_may_end_anywhere_in_what_is_read_at_once) {
  const Bytes small = deflate(Compression::kGzip, counts(11));
  for (std::size_t before = 0; before < 40; ++before) {
    Bytes noise(262'144 - 60 + before);
    Random random(before);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random.below(256));
    const Bytes stored = joined({deflate(Compression::kGzip, noise, 1), small, small});
    EXPECT_EQ(streamed(stored, 1 << 20), joined({noise, counts(11), counts(11)})) << before;
  }
}

TEST(InflateStream, errors_are_those_of_an_object_inflated_as_a_whole) {
  const Bytes one = deflate(Compression::kGzip, counts(3'000));
  const Bytes zlib = deflate(Compression::kZlib, counts(3'000));
  std::vector<Bytes> files = {
      joined({one, Bytes(512)}), joined({zlib, Bytes(512)}), joined({one, Bytes(300'000), one}),
      joined({zlib, one}),       joined({zlib, Bytes(1)}),   joined({zlib, Bytes(1, std::byte{1})}),
      joined({one, one})};
  for (const Bytes& good : {one, zlib, joined({one, one})}) {
    for (std::size_t size = 2; size < good.size(); size += 7) {
      files.emplace_back(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    }
    for (std::size_t i = 10; i < good.size(); ++i) {
      Bytes bad = good;
      bad[i] ^= std::byte{0x10};
      files.push_back(bad);
    }
  }
  for (const Bytes& file : files) EXPECT_EQ(error_of(file), error_of_whole(file)) << file.size();
}

TEST(InflateStream, records_are_counted_and_damage_among_them_is_placed_in_the_contents) {
  Bytes records;
  for (int i = 0; i < 5; ++i) {
    const Bytes record = framed_tfrecord(counts(100'000));
    records.insert(records.end(), record.begin(), record.end());
  }
  const auto count = [](const Bytes& contents) {
    const MemoryFile file = file_of(deflate(Compression::kGzip, contents));
    return count_tfrecords(file, Compression::kGzip).records;
  };
  const auto error = [&](const Bytes& contents) -> std::string {
    try {
      static_cast<void>(count(contents));
    } catch (const Error& failure) {
      return failure.what();
    }
    return "no error";
  };
  EXPECT_EQ(count(records), 5U);
  EXPECT_EQ(count({}), 0U);
  const auto first = [&](std::size_t size) {
    return Bytes(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(size));
  };
  EXPECT_THAT(error(first(300'053)), HasSubstr("file: record 3, which begins at byte 300048, is cut off: 5 bytes"));
  for (const std::size_t size : {records.size() - 1, records.size() - 50'000, std::size_t{400'064 + 12}}) {
    std::string whole;
    try {
      static_cast<void>(index_tfrecords(first(size), "file"));
    } catch (const Error& failure) {
      whole = failure.what();
    }
    EXPECT_EQ(error(first(size)), whole);
  }
  records[200'032] ^= std::byte{1};
  EXPECT_THAT(error(records), HasSubstr("record 2, which begins at byte 200032, has a length whose checksum is wrong"));
}

}  // namespace
}  // namespace gyre::data
