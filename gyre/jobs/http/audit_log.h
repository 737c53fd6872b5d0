#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "gyre/base/clock.h"
#include "gyre/base/log.h"
#include "gyre/net/http/server.h"

namespace gyre::jobs::http {

/// Who asked the service for what, from where, and what came of it: a file that grows by one line of JSON for each
/// change and each refusal. Its user alone can read it, and it may be renamed at any time: the next line begins a new
/// one. Thread-safe.
class AuditLog {
 public:
  /// `now`: as for the catalog.
  AuditLog(std::filesystem::path file, Logger logger, std::function<std::int64_t()> now = wall_clock_us);

  /// For ServerOptions::audit. A disk that takes no line is told to the logger, once.
  void add(const net::http::AuditEntry& entry);

 private:
  const std::filesystem::path file_;
  const Logger logger_;
  const std::function<std::int64_t()> now_;
  std::atomic<bool> failed_{false};
};

}  // namespace gyre::jobs::http
