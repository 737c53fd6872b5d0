#include <openssl/evp.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "apps/bench_store/benches.h"
#include "gyre/base/error.h"

namespace gyre::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBlockBytes = 64 * 1024;
constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

}  // namespace

nlohmann::json decrypt(int threads, double seconds) {
  std::atomic<std::uint64_t> decrypted{0};
  std::atomic<bool> failed{false};
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const auto work = [&] {
    const std::unique_ptr<EVP_CIPHER_CTX, decltype(&::EVP_CIPHER_CTX_free)> context(::EVP_CIPHER_CTX_new(),
                                                                                    &::EVP_CIPHER_CTX_free);
    const std::array<unsigned char, 32> key{};
    std::array<unsigned char, 12> nonce{};
    std::vector<unsigned char> buffer(kBufferBytes);
    if (::EVP_DecryptInit_ex(context.get(), ::EVP_aes_256_gcm(), nullptr, key.data(), nullptr) != 1) failed = true;
    do {
      for (std::size_t at = 0; at < buffer.size() && !failed; at += kBlockBytes) {
        int done = 0;
        ++nonce[0];
        if (::EVP_DecryptInit_ex(context.get(), nullptr, nullptr, nullptr, nonce.data()) != 1 ||
            ::EVP_DecryptUpdate(context.get(), &buffer[at], &done, &buffer[at], static_cast<int>(kBlockBytes)) != 1) {
          failed = true;
        }
        decrypted += kBlockBytes;
      }
    } while (Clock::now() < end && !failed);
  };
  const auto began = Clock::now();
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  const std::chrono::duration<double> spent = Clock::now() - began;
  if (failed) throw Error(ErrorCode::kUnsupported, "OpenSSL cannot decrypt with AES-256-GCM");
  return {{"bytes_per_second", static_cast<double>(decrypted) / spent.count()}};
}

}  // namespace gyre::bench
