#pragma once

#include <array>
#include <string>

#include "gyre/launch/watcher.h"

namespace gyre::launch {

/// Tells two others; either may be null.
class Watchers final : public JobWatcher {
 public:
  Watchers(JobWatcher* first, JobWatcher* second) : all_{first, second} {}

  void started(int rank, pid_t process, const std::string& role, const std::string& host) override {
    tell([&](JobWatcher& each) { each.started(rank, process, role, host); });
  }
  void ended(const ExitRecord& record) override {
    tell([&](JobWatcher& each) { each.ended(record); });
  }
  void lost(const ExitRecord& record) override {
    tell([&](JobWatcher& each) { each.lost(record); });
  }
  void failed(int rank, const std::string& report) override {
    tell([&](JobWatcher& each) { each.failed(rank, report); });
  }
  void stopping(int signal) override {
    tell([&](JobWatcher& each) { each.stopping(signal); });
  }
  void restarting(int number) override {
    tell([&](JobWatcher& each) { each.restarting(number); });
  }

 private:
  template <typename Tell>
  void tell(const Tell& one) {
    for (JobWatcher* each : all_) {
      if (each != nullptr) one(*each);
    }
  }

  std::array<JobWatcher*, 2> all_;
};

}  // namespace gyre::launch
