// What an upload sends: blocks that are whole, repeatable, few enough; and names that the service keeps.

#include "gyre/store/uploading/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/data/formats/inflate.h"
#include "gyre/store/sources/open.h"
#include "gyre/store/uploading/upload.h"

namespace gyre::store {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

Bytes some_bytes(std::uint64_t size_bytes, bool random) {
  Bytes bytes(size_bytes);
  Random generator(size_bytes);
  for (std::uint64_t i = 0; i + 8 <= size_bytes; i += 8) {
    const std::uint64_t word = random ? generator.next_u64() : i / 4096;
    std::memcpy(bytes.data() + i, &word, sizeof word);
  }
  return bytes;
}

std::vector<Bytes> blocks_of(const Bytes& bytes, bool compress) {
  Blocks blocks(bytes.size(), compress, [&](std::uint64_t offset_bytes, std::span<std::byte> into) {
    ASSERT_LE(offset_bytes + into.size(), bytes.size());
    std::memcpy(into.data(), bytes.data() + offset_bytes, into.size());
  });
  std::vector<Bytes> all;
  while (auto block = blocks.next()) all.push_back(std::move(*block));
  return all;
}

Bytes joined(const std::vector<Bytes>& blocks) {
  Bytes all;
  for (const Bytes& block : blocks) all.insert(all.end(), block.begin(), block.end());
  return all;
}

TEST(Blocks, AreTheObjectAndTheSameEachTime) {
  for (const std::uint64_t size :
       {std::uint64_t{0}, std::uint64_t{1}, 16 * kMiB - 1, 16 * kMiB, 16 * kMiB + 1, 35 * kMiB}) {
    for (const bool random : {false, true}) {
      const Bytes bytes = some_bytes(size, random);
      for (const bool compress : {false, true}) {
        if (compress && random && size > 16 * kMiB + 1) continue;  // Takes seconds, and shows nothing more.
        const auto blocks = blocks_of(bytes, compress);
        ASSERT_FALSE(blocks.empty());
        for (std::size_t i = 0; i + 1 < blocks.size(); ++i) EXPECT_EQ(blocks[i].size(), Blocks::block_bytes(size));
        EXPECT_LE(blocks.back().size(), Blocks::block_bytes(size));
        EXPECT_EQ(blocks, blocks_of(bytes, compress));
        const Bytes all = joined(blocks);
        if (!compress) {
          EXPECT_EQ(all, bytes) << size;
          continue;
        }
        data::Inflater inflater;
        data::ScratchBuffer buffer;
        const auto back = inflater.inflate(data::Compression::kGzip, all, size + 1, "the blocks", buffer);
        EXPECT_TRUE(std::ranges::equal(back, bytes)) << size;
      }
    }
  }
}

// The service would keep both files of such a pair as one blob, and say that both were put.
TEST(Upload, SendsNothingWhereAzureWouldChangeAName) {
  const auto target = open_source("az://c/p", {.azure_account = "nobody"});
  for (const std::string name : {"a\\b.txt", "a.", "a./b"}) {
    try {
      upload({{.name = "a/b.txt"}, {.name = name}}, *target, {});
      ADD_FAILURE() << name << " was not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      EXPECT_NE(std::string(error.what()).find("1 file would get another name in "), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(": " + name + " ("), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(open_source("az://c/a\\b", {.azure_account = "nobody"}), Error);
}

TEST(Blocks, AreAtMostTenThousand) {
  for (const std::uint64_t size : {std::uint64_t{1}, 150'000 * kMiB, 5'000'000 * kMiB}) {
    // Where nothing can be compressed, gzip adds a few bytes in a thousand.
    const std::uint64_t most = size + size / 1'000;
    EXPECT_LE((most + Blocks::block_bytes(size) - 1) / Blocks::block_bytes(size), 10'000U) << size;
    EXPECT_GE(Blocks::block_bytes(size), 5 * kMiB) << "S3's least";
  }
}

}  // namespace
}  // namespace gyre::store
