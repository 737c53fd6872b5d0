#include <fmt/format.h>
#include <libdeflate.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "apps/bench_store/benches.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 30;

struct Stored {
  Bytes bytes;
  std::size_t inflated_bytes = 0;
};

/// gzip's last four bytes are the length before compression, modulo 2^32.
Stored read_stored(const std::string& path) {
  Stored stored{.bytes = read_file(path, kMostFileBytes)};
  if (stored.bytes.size() < 18) throw Error(ErrorCode::kCorruptData, path + " is not a gzip file");
  std::uint32_t length = 0;
  std::memcpy(&length, stored.bytes.data() + stored.bytes.size() - sizeof length, sizeof length);
  stored.inflated_bytes = length;
  return stored;
}

}  // namespace

nlohmann::json inflate(const std::vector<std::string>& files, int threads, double seconds) {
  std::vector<Stored> all;
  std::size_t largest = 0;
  for (const std::string& file : files) {
    all.push_back(read_stored(file));
    largest = std::max(largest, all.back().inflated_bytes);
  }
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> inflated{0};
  std::atomic<std::uint64_t> stored{0};
  std::atomic<bool> failed{false};
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const auto work = [&] {
    const std::unique_ptr<libdeflate_decompressor, decltype(&::libdeflate_free_decompressor)> decompressor(
        ::libdeflate_alloc_decompressor(), &::libdeflate_free_decompressor);
    Bytes into(largest);
    do {
      const Stored& one = all[next++ % all.size()];
      std::size_t written = 0;
      const auto result = ::libdeflate_gzip_decompress(decompressor.get(), one.bytes.data(), one.bytes.size(),
                                                       into.data(), into.size(), &written);
      if (result != LIBDEFLATE_SUCCESS) failed = true;
      inflated += written;
      stored += one.bytes.size();
    } while (Clock::now() < end && !failed);
  };
  const auto began = Clock::now();
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  const std::chrono::duration<double> spent = Clock::now() - began;
  if (failed) throw Error(ErrorCode::kCorruptData, "libdeflate cannot read one of the files");
  return {{"bytes_per_second", static_cast<double>(inflated) / spent.count()},
          {"stored_bytes_per_second", static_cast<double>(stored) / spent.count()}};
}

}  // namespace gyre::bench
