#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace gyre::app {

/// Shows what a job writes into the files of its log folder: "stdout.txt" on stdout and "stderr.txt" on stderr as they
/// are, any other file line by line with its name in front ("[job_prep] …"). Not thread-safe.
class LogFollower {
 public:
  explicit LogFollower(std::filesystem::path folder) : folder_(std::move(folder)) {}

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
  std::map<std::string, Log> logs_;  // By file name.
};

}  // namespace gyre::app
