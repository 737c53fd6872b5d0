// Whoever finds a job's key in a core file, or in memory that was used again, can take part in the job.
#include "gyre/base/secret_key.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/random.h"

namespace gyre {
namespace {

SecretKey random_key() {
  SecretKey key;
  fill_with_secure_random(key);
  return key;
}

/// What /proc/self/smaps says of the mapping that `address` lies in.
std::set<std::string> flags_of(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream file("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    std::uintptr_t start = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> start >> dash >> end && dash == '-') inside = start <= wanted && wanted < end;
    if (!inside || !line.starts_with("VmFlags:")) continue;
    std::istringstream flags(line.substr(8));
    return {std::istream_iterator<std::string>(flags), {}};
  }
  return {};
}

TEST(SecretKey, lies_in_memory_that_core_dumps_leave_out) {
  const SecretKey key = random_key();
  EXPECT_TRUE(flags_of(key.data()).contains("dd"));
  const std::vector<std::byte> elsewhere(32);
  EXPECT_FALSE(flags_of(elsewhere.data()).contains("dd"));
}

TEST(SecretKey, is_wiped_when_it_is_destroyed_and_its_successor_starts_as_zeros) {
  const std::byte* place = nullptr;
  {
    const SecretKey key = random_key();
    place = key.data();
    ASSERT_FALSE(std::all_of(place, place + SecretKey::kBytes, [](std::byte value) { return value == std::byte{0}; }));
  }
  // The page stays mapped.
  EXPECT_TRUE(std::all_of(place, place + SecretKey::kBytes, [](std::byte value) { return value == std::byte{0}; }));
  std::vector<SecretKey> keys(500);
  for (const SecretKey& key : keys) EXPECT_EQ(key, SecretKey());
}

TEST(SecretKey, copies_have_memory_of_their_own) {
  SecretKey key = random_key();
  SecretKey copy = key;
  EXPECT_EQ(copy, key);
  copy[0] ^= std::byte{1};
  EXPECT_NE(copy, key);
  copy = key;
  EXPECT_EQ(copy, key);
  const SecretKey& itself = key;
  key = itself;
  EXPECT_EQ(copy, key);
}

TEST(SecretKey, threads_never_share_a_slot) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([thread] {
      for (int round = 0; round < kRounds; ++round) {
        std::vector<SecretKey> keys(40);
        for (SecretKey& key : keys) key.fill(static_cast<std::byte>(thread + 1));
        for (const SecretKey& key : keys) {
          EXPECT_TRUE(std::all_of(key.begin(), key.end(),
                                  [&](std::byte value) { return value == static_cast<std::byte>(thread + 1); }));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SecretKey, derived_keys_follow_from_secret_and_purpose) {
  const SecretKey key = random_key();
  EXPECT_EQ(derive_key(key, "links"), derive_key(key, "links"));
  EXPECT_NE(derive_key(key, "links"), derive_key(key, "store"));
  EXPECT_NE(derive_key(key, "links"), derive_key(random_key(), "links"));
  const Sha256 expected = hmac_sha256(key, as_bytes("links"));
  EXPECT_EQ(derive_key(key, "links"), SecretKey(expected));
}

TEST(SecretKey, comes_back_from_its_digits_and_from_nothing_else) {
  const SecretKey key = random_key();
  const std::string digits = hex_of(key);
  EXPECT_EQ(digits.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(key_from_hex(digits), key);
  SecretKey counted;
  for (std::size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<std::byte>(i + 250);
  EXPECT_TRUE(hex_of(counted).starts_with("fafbfcfdfeff0001"));
  EXPECT_EQ(key_from_hex("FAFBFCFDFEFF0001" + hex_of(counted).substr(16)), counted);
  EXPECT_EQ(key_from_hex(digits.substr(1)), std::nullopt);
  EXPECT_EQ(key_from_hex(digits + "0"), std::nullopt);
  EXPECT_EQ(key_from_hex(digits.substr(1) + "g"), std::nullopt);
  EXPECT_EQ(key_from_hex(""), std::nullopt);
}

TEST(SecretKey, secrets_are_read_whole_and_within_a_limit) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const UniqueFd source(ends[0]);
  UniqueFd sink(ends[1]);
  write_all(sink.get(), as_bytes("0123456789"), "a pipe");
  sink.reset();
  EXPECT_THROW(read_secret(source.get(), 9, "a pipe"), Error);
  const UniqueFd empty(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(read_secret(empty.get(), 9, "nothing").empty());
  const UniqueFd zeros(::open("/proc/self/comm", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(as_text(read_secret(zeros.get(), 100, "a name")), as_text(read_file("/proc/self/comm", 100)));
}

TEST(SecretKey, buffers_are_wiped_at_the_end_of_a_scope) {
  std::string text = "00112233445566778899";
  {
    const WipedAtEnd wiped(text);
  }
  EXPECT_EQ(text, std::string(20, '\0'));
}

}  // namespace
}  // namespace gyre
