#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gyre::metrics {

/// What a launcher says of its job to those who show it: a line of JSON each, in a pipe or in the job's metrics file.
struct News {
  enum class Kind : std::uint8_t {
    kStarted,     ///< `rank` is `process` (0: not known), in the role `text`, on `host` (empty: the launcher's).
    kEnded,       ///< `rank`, with `code` or `signal`; `asked`: because of another, or because all were stopped.
    kLost,        ///< `rank` has failed, and the others go on.
    kFailed,      ///< `rank` is why the job failed (-1: none, nothing was started); `text` is the launcher's report.
    kStopping,    ///< Everybody has got `signal`.
    kRestarting,  ///< All ranks start again, for the `code`th time.
    kFinished,    ///< The job is over; `code` is the launcher's exit code.
    kPreparing,   ///< No rank has started: `text` is how far the staging of its data has come; `code` 1: it is done.
  };
  Kind kind = Kind::kStarted;
  int rank = -1;
  int process = 0;
  int code = 0;
  int signal = 0;
  bool asked = false;
  std::int64_t time_us = 0;  ///< Since 1970.
  std::string text{};
  std::string host{};
};

/// With its newline.
std::string to_line(const News& news);
/// Without the newline; nothing for any other line.
std::optional<News> parse_news(std::string_view line);

}  // namespace gyre::metrics
