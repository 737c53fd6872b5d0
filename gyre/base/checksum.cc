#include "gyre/base/checksum.h"

#include <fmt/format.h>
#include <isa-l/crc.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>

#include "gyre/base/check.h"

namespace gyre {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
  // ISA-L takes an int as the length and works on the inverted value.
  constexpr std::size_t kMostAtOnce = 1U << 30;
  std::uint32_t inverted = ~previous;
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kMostAtOnce);
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    inverted = crc32_iscsi(data, static_cast<int>(count), inverted);
    bytes = bytes.subspan(count);
  }
  return ~inverted;
}

std::uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

std::uint64_t xxh3_64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Sha256 sha256(std::span<const std::byte> bytes) {
  Sha256 result;
  unsigned int length = 0;
  const int ok = EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(result.data()), &length,
                            EVP_sha256(), nullptr);
  GYRE_CHECK(ok == 1);
  return result;
}

std::string hex(const Sha256& digest) {
  std::string digits;
  for (const std::byte byte : digest) digits += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return digits;
}

Sha256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  Sha256 result;
  unsigned int length = 0;
  GYRE_CHECK(key.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()));
  // OpenSSL takes a null pointer for "not given", also where the length is 0.
  const std::byte nothing{};
  const std::byte* const key_start = key.empty() ? &nothing : key.data();
  const std::byte* const message_start = message.empty() ? &nothing : message.data();
  const unsigned char* done =
      HMAC(EVP_sha256(), key_start, static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(message_start),
           message.size(), reinterpret_cast<unsigned char*>(result.data()), &length);
  GYRE_CHECK(done != nullptr);
  return result;
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace gyre
