#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/store/sources/source.h"
#include "gyre/store/staging/transfer_limit.h"

namespace gyre::store {

/// Reads whole ranges of one source's objects, trying again where that can help. Thread-safe: each call uses a reader
/// of its own, whose connection stays for a later one.
class ObjectRanges {
 public:
  /// `source` must outlive it, and is listed before anything is read.
  ObjectRanges(const Source& source, ReadLimits limits, std::chrono::milliseconds patience)
      : source_(source), limits_(std::move(limits)), patience_(patience) {}

  /// Errors are those of fetch().
  void read(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into);

 private:
  static constexpr int kMostRequests = 64;

  std::unique_ptr<ObjectReader> take_reader() GYRE_EXCLUDES(mutex_);

  const Source& source_;
  const ReadLimits limits_;
  const std::chrono::milliseconds patience_;
  TransferLimit limit_{kMostRequests};
  std::atomic<std::uint64_t> read_bytes_{0};
  std::atomic<std::uint64_t> setbacks_{0};
  Mutex mutex_;
  std::vector<std::unique_ptr<ObjectReader>> idle_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::store
