#include "gyre/launch/internal/log_folder.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::launch {

namespace {

namespace fs = std::filesystem;

std::optional<int> as_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 ? std::optional(number) : std::nullopt;
}

struct LogFile {
  int rank = 0;
  int number = 0;  ///< Of an earlier job; 0 for rank-3.log itself.
};

/// Of "rank-3.log" and "rank-3.log.1"; nothing for other names.
std::optional<LogFile> parse_log_name(std::string_view name) {
  constexpr std::string_view kBegin = "rank-";
  constexpr std::string_view kEnd = ".log";
  const std::size_t end = name.find(kEnd);
  if (!name.starts_with(kBegin) || end == std::string_view::npos) return std::nullopt;
  const auto rank = as_number(name.substr(kBegin.size(), end - kBegin.size()));
  const std::string_view rest = name.substr(end + kEnd.size());
  if (!rank) return std::nullopt;
  if (rest.empty()) return LogFile{*rank, 0};
  const auto number = rest.starts_with('.') ? as_number(rest.substr(1)) : std::nullopt;
  return number ? std::optional(LogFile{*rank, *number}) : std::nullopt;
}

bool is_in_the_way(const LogFile& log, const OwnRanks& own) {
  return log.number == 0 && (own.contains(log.rank) || (own.contains(0) && log.rank >= own.job_size()));
}

}  // namespace

std::string log_name(int rank) { return fmt::format("rank-{}.log", rank); }

int prepare_log_folder(const fs::path& folder, const OwnRanks& own) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) {
    throw system_error(fmt::format("cannot create the log directory {}", folder.string()), failure.value());
  }
  int last_number = 0;
  std::vector<fs::path> earlier;
  for (auto entry = fs::directory_iterator(folder, failure); !failure && entry != fs::directory_iterator();
       entry.increment(failure)) {
    const auto log = parse_log_name(entry->path().filename().string());
    if (!log) continue;
    last_number = std::max(last_number, log->number);
    std::error_code unknown;
    const bool plain = entry->symlink_status(unknown).type() == fs::file_type::regular;
    if (is_in_the_way(*log, own) && plain && entry->file_size(unknown) > 0) earlier.push_back(entry->path());
  }
  for (const fs::path& path : earlier) {
    fs::rename(path, fmt::format("{}.{}", path.string(), last_number + 1), failure);
    if (failure) throw system_error(fmt::format("cannot rename the log file {}", path.string()), failure.value());
  }
  return earlier.empty() ? 0 : last_number + 1;
}

UniqueFd open_log(const fs::path& path) {
  UniqueFd log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!log) throw system_error(fmt::format("cannot write the log file {}", path.string()), errno);
  return log;
}

}  // namespace gyre::launch
