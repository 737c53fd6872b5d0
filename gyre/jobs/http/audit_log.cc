#include "gyre/jobs/http/audit_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/resources/json.h"

namespace gyre::jobs::http {

AuditLog::AuditLog(std::filesystem::path file, Logger logger, std::function<std::int64_t()> now)
    : file_(std::move(file)), logger_(std::move(logger)), now_(std::move(now)) {}

void AuditLog::add(const net::http::AuditEntry& entry) {
  nlohmann::ordered_json json = {{"time", resources::iso_8601_time(now_())},
                                 {"user", entry.user},
                                 {"from", entry.peer},
                                 {"what", fmt::format("{} {}", method_name(entry.method), entry.path)},
                                 {"status", entry.status},
                                 {"outcome", entry.error.empty() ? "ok" : entry.error}};
  if (!entry.command.empty()) json["command"] = entry.command;
  if (entry.omitted > 0) json["refusalsOmittedBefore"] = entry.omitted;
  // Names in requests need not be UTF-8.
  const std::string line = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const UniqueFd file(::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  // One write: lines of several threads do not mix.
  const bool written = file && ::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const int failure = errno;
  if (!written && !failed_.exchange(true)) {
    logger_->error("{}; requests are served all the same",
                   system_error(fmt::format("cannot write the audit log {}", file_.string()), failure).what());
  }
  if (written) failed_ = false;
}

}  // namespace gyre::jobs::http
