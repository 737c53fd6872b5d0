#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/launch/console.h"
#include "gyre/launch/watcher.h"
#include "gyre/metrics/file.h"
#include "gyre/metrics/news.h"
#include "gyre/metrics/sample.h"

namespace gyre::launch {

/// The file of `gyre run --metrics`: what the ranks log, and what becomes of them. While a disk is full what comes is
/// left out, which take_words() says once; the job goes on.
class JobMetrics final : public JobWatcher {
 public:
  struct Options {
    std::filesystem::path file;
    std::uint64_t most_bytes = metrics::kMostFileBytes;
    int ranks = 1;             ///< Of the job; what is said to come from others is left out.
    int first = 0;             ///< Added to the number of each.
    bool for_service = false;  ///< As LaunchOptions::metrics_for_service.
  };

  /// Error for a file that cannot be written. `facts`: see run_facts().
  JobMetrics(const Options& options, const std::vector<std::pair<std::string, std::string>>& facts);

  void add(std::span<const metrics::Sample> samples);
  void started(int rank, pid_t process, const std::string& role, const std::string& host) override;
  void ended(const ExitRecord& record) override;
  void lost(const ExitRecord& record) override;
  void failed(int rank, const std::string& report) override;
  void stopping(int signal) override;
  void restarting(int number) override;
  /// The job is over.
  void finish(int exit_code);
  /// Sentences that the person should read, each once; mostly empty.
  std::string take_words() { return std::exchange(words_, {}); }

 private:
  void tell(metrics::News news);
  void say_failure(const std::string& why);

  std::string name_;
  int ranks_;
  int first_;
  bool for_service_;
  metrics::FileWriter writer_;
  std::string words_;
  std::uint64_t left_out_ = 0;  ///< In samples.
  bool said_failure_ = false;
  bool said_full_ = false;
};

/// Of a job; nothing where nobody wants its metrics. Error as JobMetrics, but for a service's.
std::optional<JobMetrics> make_job_metrics(const LaunchOptions& options, int ranks, int first = 0);

}  // namespace gyre::launch
