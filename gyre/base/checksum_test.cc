// Checksums and keyed hashes must be the ones the rest of the world computes, so the vectors are the published ones.
#include "gyre/base/checksum.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"

namespace gyre {
namespace {

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

TEST(checksum, crc32c_gives_the_values_of_rfc_3720) {
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8A9136AAU);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\xFF'))), 0x62A8AB43U);
  std::string rising(32, '\0');
  std::iota(rising.begin(), rising.end(), '\0');
  EXPECT_EQ(crc32c(as_bytes(rising)), 0x46DD794EU);
  EXPECT_EQ(crc32c(as_bytes(std::string(rising.rbegin(), rising.rend()))), 0x113FDB5CU);
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(checksum, crc32c_continues_where_it_stopped) {
  const std::string text = "the whole is the sum of its parts";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const std::uint32_t first = crc32c(as_bytes(std::string_view(text).substr(0, cut)));
    EXPECT_EQ(crc32c(as_bytes(std::string_view(text).substr(cut)), first), crc32c(as_bytes(text))) << "cut " << cut;
  }
}

TEST(checksum, masked_crc32c_is_tfrecords_rotation_plus_constant) {
  EXPECT_EQ(masked_crc32c(as_bytes("123456789")), 0xC78AB0E5U);
}

TEST(checksum, xxh3_of_nothing_is_the_published_value_and_the_seed_counts) {
  EXPECT_EQ(xxh3_64({}), 0x2D06800538D394C2U);
  EXPECT_NE(xxh3_64(as_bytes("abc")), xxh3_64(as_bytes("abc"), 1));
  EXPECT_NE(xxh3_64(as_bytes("abc")), xxh3_64(as_bytes("abd")));
}

TEST(checksum, sha256_gives_the_values_of_fips_180_4) {
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(as_bytes("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(as_bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(checksum, hmac_sha256_gives_the_values_of_rfc_4231) {
  EXPECT_EQ(hex(hmac_sha256(as_bytes(std::string(20, '\x0b')), as_bytes("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256(as_bytes("Jefe"), as_bytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  // A key longer than a block is hashed first.
  EXPECT_EQ(hex(hmac_sha256(as_bytes(std::string(131, '\xaa')),
                            as_bytes("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hex(hmac_sha256({}, {})), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(checksum, comparison_in_constant_time_still_compares) {
  EXPECT_TRUE(equal_in_constant_time(as_bytes("secret"), as_bytes("secret")));
  EXPECT_TRUE(equal_in_constant_time({}, {}));
  EXPECT_FALSE(equal_in_constant_time(as_bytes("secret"), as_bytes("secreT")));
  EXPECT_FALSE(equal_in_constant_time(as_bytes("secret"), as_bytes("secre")));
}

}  // namespace
}  // namespace gyre
