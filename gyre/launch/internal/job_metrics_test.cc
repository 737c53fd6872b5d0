// A disk that was full for a while must cost the metrics of that while, and nothing else.
#include "gyre/launch/internal/job_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "gyre/metrics/file.h"

namespace gyre::launch {
namespace {

namespace fs = std::filesystem;

/// No file of this process grows beyond so many bytes.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class Found : public metrics::FileVisitor {
 public:
  void sample(const metrics::Sample& sample) override { steps.push_back(sample.step); }
  void note(std::string_view key, std::string_view value) override {
    notes.push_back(std::string(key) + "=" + std::string(value));
  }
  std::vector<std::int64_t> steps;
  std::vector<std::string> notes;
};

TEST(JobMetricsTest, goes_on_after_a_full_disk_and_counts_what_is_missing) {
  std::string pattern = (fs::temp_directory_path() / "gyre-job-metrics-test-XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  const fs::path file = folder / "run.metrics";
  {
    JobMetrics metrics({.file = file}, {});
    const auto add = [&](std::int64_t step) {
      metrics.add(std::vector<metrics::Sample>{{"loss", 0, step, step, 0.5}});
    };
    add(0);
    {
      const FullDisk full(fs::file_size(file) + 1);
      add(1);
      EXPECT_THAT(metrics.take_words(), testing::HasSubstr("what the ranks log is left out until that is over"));
      add(2);
      EXPECT_EQ(metrics.take_words(), "");
    }
    add(3);
    metrics.finish(7);
    EXPECT_EQ(metrics.take_words(), "");
  }
  Found found;
  EXPECT_EQ(metrics::read_metrics(file, found), 0U);
  EXPECT_THAT(found.steps, testing::ElementsAre(0, 3));
  EXPECT_THAT(found.notes, testing::ElementsAre("dropped=2", "exit_code=7"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace gyre::launch
