#include "gyre/jobs/node/internal/log_allowance.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "gyre/base/file.h"

namespace gyre::jobs::node::internal {

namespace {

using std::chrono::milliseconds;

/// More than a disk takes: the files are looked at before they can have grown by what is left.
constexpr std::uint64_t kFastestBytesPerMs = 1'000'000;
constexpr milliseconds kShortestPause{250};
constexpr milliseconds kLongestPause{10'000};

std::uint64_t size_of(const std::filesystem::path& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  return static_cast<std::uint64_t>(status.st_size);
}

}  // namespace

LogAllowance::LogAllowance(std::vector<std::filesystem::path> files, std::uint64_t most_bytes,
                           std::filesystem::path counted)
    : most_bytes_(most_bytes),
      counted_(std::move(counted)),
      next_(most_bytes == 0 ? Deadline::never() : Deadline::after(milliseconds(0))) {
  for (std::filesystem::path& path : files) files_.push_back({.path = std::move(path)});
}

bool LogAllowance::enforce() {
  if (most_bytes_ == 0) return false;
  if (used_up_) {
    for (File& file : files_) cut(file);
    next_ = Deadline::after(kShortestPause);
    return false;
  }
  std::uint64_t bytes = counted_.empty() ? 0 : size_of(counted_);
  for (File& file : files_) bytes += file.kept = size_of(file.path);
  if (bytes <= most_bytes_) {
    const milliseconds pause((most_bytes_ - bytes) / kFastestBytesPerMs);
    next_ = Deadline::after(std::clamp(pause, kShortestPause, kLongestPause));
    return false;
  }
  used_up_ = true;
  share_out(bytes - most_bytes_);
  for (File& file : files_) cut(file);
  next_ = Deadline::after(kShortestPause);
  return true;
}

/// The longest file has caused it.
void LogAllowance::share_out(std::uint64_t excess) {
  while (excess > 0) {
    File& longest = *std::ranges::max_element(files_, {}, &File::kept);
    const std::uint64_t part = std::min(excess, longest.kept);
    longest.kept -= part;
    excess -= part;
  }
}

void LogAllowance::cut(File& file) const {
  if (size_of(file.path) <= file.kept) return;
  const UniqueFd log(::open(file.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK));
  struct stat status{};
  if (!log || ::fstat(log.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (::ftruncate(log.get(), static_cast<off_t>(file.kept)) != 0 || file.marked) return;
  const std::string mark = fmt::format(
      "\n[gyre: this log is cut off here: the job's logs have reached {} bytes on this node, which is its share of "
      "what "
      "the server lets a job's logs have (`gyre server --limit job-logs`); the job goes on]\n",
      most_bytes_);
  // Over what its writers have added meanwhile.
  if (::pwrite(log.get(), mark.data(), mark.size(), static_cast<off_t>(file.kept)) < 0) return;
  file.marked = true;
  file.kept += mark.size();
  if (::ftruncate(log.get(), static_cast<off_t>(file.kept)) != 0) return;  // Next time.
}

}  // namespace gyre::jobs::node::internal
