// Compressed files come from anywhere and are named as anybody likes: their contents are either exact or an error.
#include "gyre/data/formats/inflate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::data {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMost = std::uint64_t{1} << 30;

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

Bytes inflated(const Bytes& stored, std::uint64_t most = kMost) {
  Inflater inflater;
  ScratchBuffer buffer;
  const auto contents = inflater.inflate(sniff_compression(stored), stored, most, "file", buffer);
  return {contents.begin(), contents.end()};
}

std::string error_of(const Bytes& stored, std::uint64_t most = kMost) {
  try {
    static_cast<void>(inflated(stored, most));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Inflate, what_was_compressed_comes_back_for_both_kinds_and_many_sizes) {
  for (const std::size_t size : {0U, 1U, 100U, 65'536U, 3'000'000U}) {
    const Bytes contents = counts(size);
    for (const Compression compression : {Compression::kGzip, Compression::kZlib}) {
      const Bytes stored = deflate(compression, contents);
      EXPECT_EQ(sniff_compression(stored), compression);
      EXPECT_EQ(inflated(stored), contents) << size;
    }
  }
}

TEST(Inflate, members_follow_each_other_and_zeros_behind_them_are_padding) {
  const Bytes first = counts(200'000);
  const Bytes second = counts(70);
  const Bytes gzip = joined({deflate(Compression::kGzip, first), deflate(Compression::kGzip, second)});
  EXPECT_EQ(inflated(gzip), joined({first, second}));
  EXPECT_EQ(inflated(joined({gzip, Bytes(512)})), joined({first, second}));
}

TEST(Inflate, a_damaged_byte_is_an_error_wherever_it_is) {
  const Bytes good = deflate(Compression::kGzip, counts(5'000));
  for (std::size_t i = 0; i < good.size(); ++i) {
    Bytes bad = good;
    bad[i] ^= std::byte{0x10};
    // The header's time, flags for the reader's comfort and operating system do not change the contents.
    if (i == 3 || (i >= 4 && i < 10)) continue;
    if (sniff_compression(bad) == Compression::kNone) continue;
    EXPECT_NE(error_of(bad), "no error") << "byte " << i;
  }
}

TEST(Inflate, every_cut_is_an_error_that_names_the_file_and_the_member) {
  const Bytes one = deflate(Compression::kGzip, counts(3'000));
  const Bytes two = joined({one, one});
  for (std::size_t size = 2; size < one.size(); ++size) {
    EXPECT_THAT(error_of(Bytes(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(size))), HasSubstr("file: "));
  }
  EXPECT_THAT(error_of(Bytes(two.begin(), two.end() - 1)),
              HasSubstr("in the gzip member that begins at byte " + std::to_string(one.size()) + ", number 2"));
  EXPECT_THAT(error_of(joined({deflate(Compression::kZlib, counts(10)), one})),
              HasSubstr("follow the end of the zlib"));
}

TEST(Inflate, contents_beyond_the_limit_are_refused_without_taking_their_memory) {
  const Bytes bomb = deflate(Compression::kGzip, Bytes(std::size_t{64} << 20), 9);
  ASSERT_LT(bomb.size(), 100'000U);
  EXPECT_THAT(error_of(bomb, 1 << 20), HasSubstr("more than 1 MB"));
  // A length that lies cannot make us take more than deflate could make of the bytes that are there.
  Bytes lies = deflate(Compression::kGzip, counts(100));
  std::fill(lies.end() - 4, lies.end(), std::byte{0xff});
  Inflater inflater;
  ScratchBuffer buffer;
  EXPECT_THROW(static_cast<void>(inflater.inflate(Compression::kGzip, lies, kMost, "file", buffer)), Error);
  EXPECT_LT(buffer.capacity_bytes(), lies.size() * 1100);
}

TEST(Inflate, memory_beyond_the_budget_is_refused_and_given_back) {
  const auto budget = std::make_shared<MemoryBudget>(100'000);
  {
    ScratchBuffer buffer(budget);
    Inflater inflater;
    const Bytes stored = deflate(Compression::kGzip, counts(1'000'000));
    EXPECT_THROW(static_cast<void>(inflater.inflate(Compression::kGzip, stored, kMost, "file", buffer)), Error);
    static_cast<void>(buffer.take(50'000));
    EXPECT_EQ(budget->used_bytes(), 50'000U);
  }
  EXPECT_EQ(budget->used_bytes(), 0U);
}

}  // namespace
}  // namespace gyre::data
