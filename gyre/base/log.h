#pragma once

#include <memory>
#include <string>
#include <string_view>

// Declared alone: this header is installed, spdlog's are not. Files that write log lines include <spdlog/logger.h>.
namespace spdlog {
class logger;  // NOLINT(readability-identifier-naming): spdlog's name.
}

namespace gyre {

/// Thread-safe; owned by the code that made it (there is no global logger). Lines go to stderr as
/// "[gyre LEVEL prefix] message", one write each.
using Logger = std::shared_ptr<spdlog::logger>;

/// `level`: trace debug info warning error off; else check_log_level()'s error.
Logger make_logger(std::string_view prefix, std::string_view level = "warning");

/// Error(kInvalidArgument) about `what`, such as an option or a variable, for another word than these.
void check_log_level(std::string_view level, std::string_view what);

/// A logger that drops everything; for tests and defaults.
Logger null_logger();

}  // namespace gyre
