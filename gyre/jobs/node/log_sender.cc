#include "gyre/jobs/node/log_sender.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include "gyre/base/trace_file.h"
#include "gyre/jobs/orders/messages.h"
#include "gyre/metrics/job_file.h"

namespace gyre::jobs::node {

using orders::LogPlace;
namespace message_type = orders::message_type;

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{40};
constexpr std::size_t kMostFiles = 4096;
/// Shorter pieces wait until all before them is written (Nagle's rule), so that what is around them stays little.
constexpr std::uint64_t kShortPiece = 4096;
/// Beyond a job's allowance: for the lines that say that it is used up.
constexpr std::uint64_t kAllowedBeyond = std::uint64_t{64} << 10;

/// What of a file stays as it is while it grows: the end of a timeline is overwritten.
std::uint64_t settled_bytes(const std::string& name, std::uint64_t bytes, bool is_complete) {
  if (is_complete || !metrics::job_timeline_named(name)) return bytes;
  return bytes - std::min<std::uint64_t>(bytes, kTraceClosing.size());
}

}  // namespace

LogSender::LogSender(std::string attempt, UniqueFd folder, std::uint64_t most_bytes)
    : attempt_(std::move(attempt)), folder_(std::move(folder)), most_bytes_(most_bytes) {
  watch();
  scan();
}

void LogSender::watch() {
  struct stat status{};
  if (::fstat(folder_.get(), &status) == 0) owner_ = status.st_uid;
  inotify_ = UniqueFd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify_) return;
  const std::string path = fmt::format("/proc/self/fd/{}", folder_.get());
  // Without it the folder is looked at as often as the node program wakes up.
  if (::inotify_add_watch(inotify_.get(), path.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_ONLYDIR) < 0) {
    inotify_.reset();
  }
}

void LogSender::seal(UniqueFd folder) {
  folder_ = std::move(folder);
  inotify_.reset();
  sealed_ = true;
  struct stat status{};
  if (::fstat(folder_.get(), &status) == 0) owner_ = status.st_uid;
  scan();
}

void LogSender::scan() {
  const int again = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(again), ::closedir);
  if (!stream) return;
  for (const dirent* entry = ::readdir(stream.get()); entry != nullptr; entry = ::readdir(stream.get())) {
    touch(entry->d_name);
  }
}

void LogSender::look() {
  if (!inotify_) return scan();
  alignas(inotify_event) std::array<char, 16'384> events;
  for (ssize_t count; (count = ::read(inotify_.get(), events.data(), events.size())) > 0;) {
    next_look_ = Deadline::after(kBetweenLooks);
    for (const char* at = events.data(); at < events.data() + count;) {
      const auto* event = reinterpret_cast<const inotify_event*>(at);
      if ((event->mask & IN_Q_OVERFLOW) != 0) scan();
      if (event->len > 0) touch(event->name);
      at += sizeof(inotify_event) + event->len;
    }
  }
}

void LogSender::touch(const std::string& name) {
  const auto known = files_.find(name);
  if (known == files_.end() && (files_.size() >= kMostFiles || !orders::is_log_name(name))) return;
  File& file = known == files_.end() ? files_[name] : known->second;
  if (std::exchange(file.queued, true)) return;
  ready_.push_back(name);
}

LogSender::Opened LogSender::open(const std::string& name) const {
  Opened opened{.file = UniqueFd(
                    ::openat(folder_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK))};
  struct stat status{};
  const bool usable =
      opened.file && ::fstat(opened.file.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == owner_;
  if (!usable) return {};
  opened.inode = status.st_ino;
  opened.bytes = static_cast<std::uint64_t>(status.st_size);
  return opened;
}

void LogSender::connected(std::uint64_t window) {
  limit_.start(window);
  in_flight_ = total_ = 0;
  end_sent_ = false;
  ready_.clear();
  for (auto& [name, file] : files_) {
    file = {.inode = file.inode, .queued = true};
    ready_.push_back(name);
  }
}

void LogSender::from(const LogPlace& place) {
  const auto found = files_.find(place.file);
  if (found == files_.end()) return;
  File& file = found->second;
  in_flight_ -= file.sent - file.taken;
  total_ -= file.sent;
  file.placed = true;
  file.refused = place.offset >= orders::kNothingWanted;
  file.sent = file.taken = file.refused ? 0 : place.offset;
  total_ += file.sent;
  touch(place.file);
}

void LogSender::taken(const LogPlace& place) {
  const auto found = files_.find(place.file);
  if (found == files_.end()) return;
  File& file = found->second;
  const std::uint64_t now = std::clamp(place.offset, file.taken, file.sent);
  const std::uint64_t more = now - file.taken;
  file.taken = now;
  in_flight_ -= more;
  limit_.took(more);
  if (file.taken == file.sent) touch(place.file);
}

std::uint64_t LogSender::allowed() const {
  if (most_bytes_ == 0) return orders::kMostLogPieceBytes;
  const std::uint64_t most = most_bytes_ + kAllowedBeyond;
  return most - std::min(most, total_);
}

bool LogSender::all_sent() const {
  return ready_.empty() && in_flight_ == 0 && std::ranges::all_of(files_, [](const auto& entry) {
           return !entry.second.asked || entry.second.placed;  // Those that were not asked for are none of ours.
         });
}

bool LogSender::send_one(const Send& send) {
  if (limit_.window() == 0) return false;
  while (!ready_.empty()) {
    if (in_flight_ > 0 && limit_.bytes() < in_flight_ + kShortPiece) return false;
    const std::string name = std::move(ready_.front());
    ready_.pop_front();
    File& file = files_[name];
    file.queued = false;
    if (send_of(name, file, send)) return true;
  }
  if (!sealed_ || end_sent_ || !all_sent()) return false;
  end_sent_ = true;
  send(message_type::kLogEnd, as_bytes(orders::encode_attempt(attempt_)));
  return true;
}

bool LogSender::send_of(const std::string& name, File& file, const Send& send) {
  if (file.refused || (file.asked && !file.placed)) return false;
  const Opened opened = open(name);
  if (!opened.file) return false;
  if (!file.asked) {
    file.asked = true;
    send(message_type::kLogOpen, as_bytes(encode(LogPlace{attempt_, name, 0})));
    return true;
  }
  const bool replaced = file.inode != 0 && opened.inode != file.inode;
  file.inode = opened.inode;
  if (replaced || opened.bytes < file.sent) {
    cut(name, file, replaced ? 0 : opened.bytes, send);
    return true;
  }
  const std::uint64_t settled = std::max(file.sent, settled_bytes(name, opened.bytes, sealed_));
  const std::uint64_t most = std::min(
      {std::uint64_t{orders::kMostLogPieceBytes}, settled - file.sent, limit_.bytes() - in_flight_, allowed()});
  if (most < kShortPiece && file.sent > file.taken) return false;  // taken() comes back to it.
  Bytes bytes(most);
  const ssize_t count = ::pread(opened.file.get(), bytes.data(), bytes.size(), static_cast<off_t>(file.sent));
  if (count <= 0) return false;
  bytes.resize(static_cast<std::size_t>(count));
  send(message_type::kLogBytes, orders::encode_log_piece({attempt_, name, file.sent}, bytes));
  file.sent += bytes.size();
  total_ += bytes.size();
  in_flight_ += bytes.size();
  if (file.sent < settled) touch(name);
  return true;
}

void LogSender::cut(const std::string& name, File& file, std::uint64_t bytes, const Send& send) {
  file.placed = false;  // Until the service has cut its own.
  send(message_type::kLogCut, as_bytes(encode(LogPlace{attempt_, name, bytes})));
  scan();  // Others may be allowed more now.
}

}  // namespace gyre::jobs::node
