#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gyre/base/log.h"
#include "gyre/jobs/catalog/attempts.h"

namespace gyre::jobs::service {

/// How an attempt ended, with what a catalog that does not know it needs.
struct EndedAttempt {
  std::string job;  ///< Its uuid.
  int number = 0;
  std::vector<catalog::AttemptNode> nodes{};
  resources::TimeUs started = 0;
  resources::TimeUs ended = 0;
  catalog::AttemptEnd end{};
};

/// The latest ends of attempts, in a file beside the catalog which stays when the catalog is restored from a backup:
/// what ended since then is not run again. It is a help, not the truth: an end that could not be appended is missing.
/// Not thread-safe.
class EndLog {
 public:
  /// Two files of so many bytes at most, each with 10,000 ends or more.
  static constexpr std::uintmax_t kMostBytes = std::uintmax_t{4} << 20;

  EndLog(std::filesystem::path file, Logger logger) : file_(std::move(file)), logger_(std::move(logger)) {}

  void append(const EndedAttempt& attempt);
  /// The oldest first; lines that cannot be read are left out.
  std::vector<EndedAttempt> read() const;

 private:
  std::filesystem::path older() const { return file_.string() + ".1"; }

  std::filesystem::path file_;
  Logger logger_;
};

}  // namespace gyre::jobs::service
