#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace gyre::app {

/// Shows what a job writes into the files of its log folder: "stdout.txt" on stdout and "stderr.txt" on stderr as they
/// are, any other file line by line with its name in front ("[job_prep] …"). Not thread-safe.
class LogFollower {
 public:
  /// Gets text, and whether it is for stdout or stderr.
  using Sink = std::function<void(std::FILE* to, std::string_view text)>;

  LogFollower(std::filesystem::path folder, Sink sink) : folder_(std::move(folder)), sink_(std::move(sink)) {}

  /// What is new since the last call. A folder or file that is not there yet comes later.
  void show_new();
  /// What is left, also lines without an end; the files are complete.
  void finish();

 private:
  struct Log {
    std::uint64_t shown = 0;
    std::string line;  ///< The beginning of one that has not ended; only of files with a prefix.
  };

  void show(const std::filesystem::path& file);

  std::filesystem::path folder_;
  Sink sink_;
  std::map<std::string, Log> logs_;  // By file name.
};

}  // namespace gyre::app
