#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gyre/store/sources/source.h"
#include "gyre/store/staging/leftovers.h"
#include "gyre/store/staging/manifest.h"
#include "gyre/store/staging/receipt.h"

namespace gyre::store {

/// How far a staging has come.
struct StageProgress {
  std::uint64_t done_bytes = 0;  ///< Of stored bytes: fetched, or already there.
  std::uint64_t total_bytes = 0;
  std::uint64_t done_files = 0;
  std::uint64_t total_files = 0;
  std::uint64_t read_bytes = 0;  ///< From the sources, now.
  std::uint64_t setbacks = 0;
  int connections = 0;  ///< Allowed at present.
};

struct StageOptions {
  std::filesystem::path folder;
  bool overwrite = true;  ///< Files that are there and differ; else they are kept.
  int connections = 16;   ///< At most, at once.
  int workers = 2;        ///< Threads that check, decompress and write.
  /// Of what is under way; as much again is used, at most, to decompress it.
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  std::uint64_t bytes_per_second = 0;           ///< 0: no limit.
  std::chrono::milliseconds patience{300'000};  ///< Without a byte of an object for as long, it is given up.
  WaitNotice* notice = nullptr;                 ///< As of ReadLimits.
  Leftovers leftovers = Leftovers::kRemoveOfTheSet;
  std::string selection{};  ///< How the objects were chosen of what the sources hold: see set_of().
  /// Called every 100 ms by the caller's thread; false stops. May be empty.
  std::function<bool(const StageProgress&)> tick{};
};

/// Brings all objects of `manifest` into a folder. `sources` are those of the manifest, in its order, listed before.
///
/// * A file gets its name when it is complete and checked: its length, its MD5 where the source has one, and the
///   checksums of its compression.
/// * What an earlier call brought there is not read again, even of an object that it had not finished (large objects
///   are read in pieces of 16 MiB).
/// * Objects that are missing, damaged or changed are in the receipt, and the others still come. A damaged one is read
///   a second time first.
/// * When everything is there, files that an earlier staging has brought and that the set does not have are treated as
///   `leftovers` says.
///
/// Error: where going on is no use (the source lets us not in: kAuthentication; it has been silent for `patience`: kIo;
/// the disk is full: kResourceExhausted; stopped: kAborted); what is there stays, for the next call.
Receipt stage(const Manifest& manifest, const std::vector<std::unique_ptr<Source>>& sources,
              const StageOptions& options);

}  // namespace gyre::store
