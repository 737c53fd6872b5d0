#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/store/sources/source.h"
#include "gyre/store/staging/manifest.h"

namespace gyre::store {

/// How far an upload has come.
struct UploadProgress {
  std::uint64_t done_bytes = 0;  ///< Of the objects, as they lie here.
  std::uint64_t total_bytes = 0;
  std::uint64_t done_files = 0;
  std::uint64_t total_files = 0;
  std::uint64_t sent_bytes = 0;
};

struct UploadOptions {
  bool compress = false;                                ///< With gzip, and a Content-Encoding that says so.
  std::string encoding{};                               ///< Content-Encoding of files that are compressed already.
  bool overwrite = true;                                ///< Objects that are there and differ; else they are kept.
  int connections = 16;                                 ///< Threads that read, compress and send.
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;  ///< Of blocks that wait.
  std::uint64_t bytes_per_second = 0;                   ///< 0: no limit.
  std::chrono::milliseconds patience{300'000};          ///< A request that fails for so long ends the upload.
  WaitNotice* notice = nullptr;                         ///< As of ReadLimits.
  /// Called every 100 ms by the caller's thread; false stops. May be empty.
  std::function<bool(const UploadProgress&)> tick{};
};

/// The proof of what was uploaded.
struct UploadReceipt {
  std::vector<std::string> sources{};
  std::string target{};
  std::optional<PartOf> part{};  ///< Of a set that several nodes upload; its whole manifest is that of the sources.

  std::uint64_t files = 0;          ///< Each is counted in one of the next three, or failed.
  std::uint64_t files_sent = 0;     ///< Now.
  std::uint64_t files_present = 0;  ///< Were there with the same bytes.
  std::uint64_t files_kept = 0;     ///< Were there with others (overwrite is false).
  std::uint64_t read_bytes = 0;     ///< Of the files, as they lie here.
  std::uint64_t stored_bytes = 0;   ///< Of the objects that were sent or present, as they are stored there.
  std::uint64_t sent_bytes = 0;     ///< Now.
  std::uint64_t reused_bytes = 0;   ///< Of blocks that an earlier upload has sent.
  double seconds = 0;
  std::vector<std::pair<std::string, std::string>> failed{};  ///< Files, and why.

  bool complete() const { return failed.empty(); }
  std::string json() const;
  /// For people, several lines.
  std::string text() const;
};

/// One object of a source that is to be put.
struct UploadEntry {
  const Source* source = nullptr;  ///< Listed before.
  Object object{};
  std::string name{};  ///< Below the target.
};

/// Puts objects into `target`, a container or a bucket (Source::putter()).
///
/// * An object is seen there when it is complete; the server has compared the MD5 of each request.
/// * What is there already, with the same bytes, is not sent again; nor are the blocks of a large object that an upload
///   which was stopped or killed has sent.
/// * Files that are missing here, or change while they are read, are in the receipt, and the others still go.
///
/// Error: where going on is no use, as for stage().
UploadReceipt upload(const std::vector<UploadEntry>& entries, const Source& target, const UploadOptions& options);

}  // namespace gyre::store
