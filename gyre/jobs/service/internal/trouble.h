#pragma once

#include <spdlog/logger.h>

#include <string>
#include <utility>

#include "gyre/base/log.h"

namespace gyre::jobs::service {

/// Says once what keeps a thread of the service from going on, and once that it goes on. Not thread-safe.
class Trouble {
 public:
  explicit Trouble(Logger logger) : logger_(std::move(logger)) {}

  void meet(const std::string& what) {
    if (what == met_) return;
    met_ = what;
    logger_->error(
        "the job service only answers questions for the moment, starts nothing and refuses changes; it tries again "
        "every "
        "second: {}",
        what);
  }
  void pass() {
    if (met_.empty()) return;
    met_.clear();
    logger_->info("the job service goes on");
  }

 private:
  Logger logger_;
  std::string met_;  // Empty while nothing is in the way.
};

}  // namespace gyre::jobs::service
