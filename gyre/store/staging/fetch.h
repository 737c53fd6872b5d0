#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>

#include "gyre/store/sources/source.h"
#include "gyre/store/staging/transfer_limit.h"

namespace gyre::store {

/// What all who fetch from a data set's sources share.
struct FetchShared {
  TransferLimit& limit;
  std::atomic<std::uint64_t>& read_bytes;
  std::atomic<std::uint64_t>& setbacks;
  std::chrono::milliseconds patience;
  WaitNotice* notice = nullptr;  ///< As of ReadLimits.
};

/// Fills `into` with the object's bytes from `offset_bytes` on; tries again with growing waits, from the last byte that
/// arrived, for as long as the patience. False where `wanted` has said, before one of the requests, that it is not
/// needed any more. Error: as ObjectReader::read(); kTimeout at the end of the patience, naming `source`; kAborted.
bool fetch(const FetchShared& shared, const std::string& source, ObjectReader& reader, const Object& object,
           std::uint64_t offset_bytes, std::span<std::byte> into, const std::stop_token& stop,
           const std::function<bool()>& wanted);

}  // namespace gyre::store
