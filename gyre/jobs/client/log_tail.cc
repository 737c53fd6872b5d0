#include "gyre/jobs/client/log_tail.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "gyre/base/clock.h"

namespace gyre::jobs::client {

namespace {

constexpr std::uint64_t kReadAtOnce = std::uint64_t{1} << 20;
constexpr std::chrono::milliseconds kFirstPause{50};      // The first lines of a job are waited for.
constexpr std::chrono::milliseconds kShortestPause{250};  // Each round is a request or two, and followers are many.
constexpr std::chrono::milliseconds kLongestPause{1'000};
/// A pause is a part of the time for which nothing has come: whoever has waited for a second does not wait for half of
/// one more.
constexpr int kFirstPart = 8;  // Before anything has come,
constexpr int kPart = 4;       // and since.

}  // namespace

std::chrono::milliseconds pause_after(std::chrono::milliseconds quiet, bool has_logs) {
  return has_logs ? std::clamp(quiet / kPart, kShortestPause, kLongestPause)
                  : std::clamp(quiet / kFirstPart, kFirstPause, kLongestPause);
}

LogTail::LogTail(LogSource& source, std::set<std::string> files, LogLines::Sink sink,
                 std::function<void(int attempt)> begins_again)
    : source_(source),
      files_(std::move(files)),
      lines_(std::move(sink), files_.empty()),
      begins_again_(std::move(begins_again)) {}

bool LogTail::read_new() {
  has_new_ = false;
  std::optional<bool> complete = read_listed();
  // What was written between that and the end is sure to be listed now.
  if (!complete && source_.job_has_ended()) complete = read_listed().value_or(true);
  if (complete.value_or(false)) lines_.finish();
  return complete.value_or(false);
}

std::optional<bool> LogTail::read_listed() {
  const auto listing = source_.list();
  if (!listing) return std::nullopt;
  const int before = std::exchange(attempts_, std::max(attempts_, listing->attempts));
  if (before > 0 && attempts_ > before) begins_again_(attempts_);
  for (const LogFile& file : listing->files) {
    if (files_.empty() ? is_log(file.name) : files_.contains(file.name)) read_file(file);
  }
  return listing->complete;
}

void LogTail::read_file(const LogFile& file) {
  Shown& shown = shown_[file.name];
  if (shown.identity != file.identity || file.bytes < shown.bytes) {
    lines_.finish(file.name);
    shown = {file.identity, 0};
  }
  while (shown.bytes < file.bytes) {
    const std::string bytes = source_.read(file.name, shown.bytes, std::min(kReadAtOnce, file.bytes - shown.bytes));
    if (bytes.empty()) return;
    shown.bytes += bytes.size();
    has_new_ = true;
    lines_.add(file.name, bytes);
  }
}

bool LogTail::read_all() {
  const bool complete = read_new();
  lines_.finish();
  return complete;
}

void LogTail::follow(const std::function<void()>& meanwhile) {
  auto last_came = SteadyClock::now();
  while (!read_new()) {
    if (has_new_) last_came = SteadyClock::now();
    meanwhile();
    const auto quiet = std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - last_came);
    ::poll(nullptr, 0, static_cast<int>(pause_after(quiet, found_logs()).count()));
  }
}

}  // namespace gyre::jobs::client
