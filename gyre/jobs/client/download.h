#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gyre/jobs/client/session.h"

namespace gyre::jobs::client {

struct RemoteFile {
  std::string path{};  ///< Below the output directory: "logs/a.txt".
  bool is_directory = false;
  std::uint64_t bytes = 0;
  std::string modified{};  ///< ISO 8601.
};

/// The files of an output directory below `path` (empty: all of it), by name. `recursive`: also those in directories
/// below, to a depth of kDeepestDirectory.
std::vector<RemoteFile> list_files(Session& session, const resources::JobName& job, const std::string& output,
                                   const std::string& path, bool recursive);
inline constexpr int kDeepestDirectory = 64;

/// Copies one file to `target`, which appears once it is complete; in parts, so that a restart of the server costs no
/// byte twice. Error(kIo) when the file changes again and again meanwhile. Returns its size.
std::uint64_t download(Session& session, const resources::JobName& job, const std::string& output,
                       const std::string& path, const std::filesystem::path& target);

/// The segments of a path below an output directory. Error(kInvalidArgument) for one that leads out of it.
std::vector<std::string> checked_segments(const std::string& path);

}  // namespace gyre::jobs::client
