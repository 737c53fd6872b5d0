#include "gyre/base/log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <array>

#include "gyre/base/error.h"

namespace gyre {

void check_log_level(std::string_view level, std::string_view what) {
  // spdlog itself takes more words, and anything unknown for "off".
  constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info", "warning", "error", "off"};
  if (std::find(kLevels.begin(), kLevels.end(), level) != kLevels.end()) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is '{}'; one of {} is needed", what, level, fmt::join(kLevels, " ")));
}

Logger make_logger(std::string_view prefix, std::string_view level) {
  check_log_level(level, "the log level");
  auto logger =
      std::make_shared<spdlog::logger>(std::string(prefix), std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(spdlog::level::from_str(std::string(level)));
  logger->set_pattern(prefix.empty() ? "[gyre %l] %v" : "[gyre %l %n] %v");
  return logger;
}

Logger null_logger() { return std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::null_sink_mt>()); }

}  // namespace gyre
