#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/metrics/file.h"
#include "gyre/metrics/sample.h"

namespace gyre::launch {

/// The file of `gyre run --metrics`. A disk that fails ends the keeping of metrics, not the job: take_words() says so
/// once.
class JobMetrics {
 public:
  /// Error for a file that cannot be written. `facts`: see run_facts(). `ranks`: of the job; what is said to come from
  /// others is left out.
  JobMetrics(const std::filesystem::path& file, const std::vector<std::pair<std::string, std::string>>& facts,
             int ranks);

  void add(std::span<const metrics::Sample> samples);
  /// The job is over.
  void finish(int exit_code);
  /// Sentences that the person should read, each once; mostly empty.
  std::string take_words() { return std::exchange(words_, {}); }

 private:
  std::string name_;
  int ranks_;
  metrics::FileWriter writer_;
  std::string words_;
  bool failed_ = false;
  bool said_full_ = false;
};

}  // namespace gyre::launch
