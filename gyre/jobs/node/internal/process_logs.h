#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/jobs/node/redactor.h"

namespace gyre::jobs::node::internal {

/// What is done with symbolic links among the folders of a path. The file itself is never one.
enum class Links { kFollowed, kRefused };

/// A log file that is written from the records of `gyre launch`, without the secrets. A process that comes
/// after one that was killed writes the same stream again; what the file has already is skipped.
class LogStream {
 public:
  /// The file is at least `begins_at` long: what an earlier attempt wrote. Error(kIo), Error(kInvalidArgument) for
  /// anything but a file.
  LogStream(std::filesystem::path path, std::uint64_t begins_at, const std::vector<std::string>& secrets, Links links);

  /// Error(kIo, kResourceExhausted); bytes that could not be written are lost, later ones are not.
  void write(std::string_view bytes);
  void finish();

 private:
  void append(std::string_view bytes);

  std::filesystem::path path_;
  UniqueFd file_;
  Redactor redactor_;
  std::uint64_t skip_;
};

/// The length of a file; 0 where there is none.
std::uint64_t length_of(const std::filesystem::path& path);

}  // namespace gyre::jobs::node::internal
