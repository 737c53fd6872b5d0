#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "gyre/base/clock.h"

namespace gyre::jobs::node::internal {

/// Keeps the log files that a job's processes write on a node, which may be their own stdout, within a number of bytes:
/// their beginnings stay, and what is written beyond is cut off again and again, after a line that says so. In between
/// the files may be longer for a moment. Links in their place are not followed. Not thread-safe.
class LogAllowance {
 public:
  /// `most_bytes`: of all files together; 0: any number. `counted`: is one of them, but never cut; its writer has a
  /// limit of its own, which is lower.
  LogAllowance(std::vector<std::filesystem::path> files, std::uint64_t most_bytes, std::filesystem::path counted = {});

  /// When they have to be looked at again.
  Deadline next() const { return next_; }
  /// Looks at them. Whether something was cut for the first time. Does not throw: a file that is not there, or cannot
  /// be cut, stays as it is.
  bool enforce();

 private:
  struct File {
    std::filesystem::path path;
    std::uint64_t kept = 0;  ///< Once the allowance is used up.
    bool marked = false;
  };
  void share_out(std::uint64_t excess);
  void cut(File& file) const;

  std::vector<File> files_;
  std::uint64_t most_bytes_;
  std::filesystem::path counted_;
  bool used_up_ = false;
  Deadline next_;
};

}  // namespace gyre::jobs::node::internal
