#include "gyre/jobs/node/internal/log_deliveries.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <spdlog/logger.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <span>
#include <system_error>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/orders/log_stream.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::node::internal {

namespace {

namespace fs = std::filesystem;
namespace message_type = orders::message_type;

/// In the connection's buffer, before a renewal of the lease.
constexpr std::size_t kMostAhead = std::size_t{128} << 10;
constexpr std::chrono::milliseconds kBetweenTries{500};

UniqueFd open_folder(const fs::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

}  // namespace

LogDeliveries::LogDeliveries(const NodeFolders& folders, Logger logger)
    : folders_(folders), logger_(std::move(logger)) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folders_.undelivered(), failure)) {
    const std::string attempt = entry.path().filename();
    const bool is_over = fs::is_empty(entry.path(), failure) && !fs::exists(folders_.record(attempt), failure);
    is_over ? static_cast<void>(fs::remove(entry.path(), failure)) : seal(attempt, {});
  }
}

/// Through no link that a job may have put there, and in the node's folder also where that was moved away.
UniqueFd LogDeliveries::open_in_root(const fs::path& folder) const {
  const UniqueFd root = open_folder(folders_.own() / "..");
  const fs::path relative = folder.lexically_relative(folders_.root());
  if (!root || relative.empty()) return {};
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH;
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, root.get(), relative.c_str(), &how, sizeof how)));
}

void LogDeliveries::start(const std::string& attempt, LogSender sender) {
  senders_.emplace(attempt, std::move(sender)).first->second.connected(window_);
}

void LogDeliveries::follow(const std::string& attempt, const fs::path& log_folder, std::uint64_t most_bytes) {
  if (senders_.contains(attempt)) return;
  UniqueFd folder = open_in_root(log_folder);
  if (!folder) {
    awaited_ = {.attempt = attempt, .folder = log_folder, .most_bytes = most_bytes};
    return;
  }
  awaited_.reset();
  running_ = attempt;
  start(attempt, LogSender(attempt, std::move(folder), most_bytes));
}

void LogDeliveries::seal(const std::string& attempt, const fs::path& log_folder) {
  if (awaited_ && awaited_->attempt == attempt) awaited_.reset();
  if (done_.contains(attempt) || (running_ != attempt && senders_.contains(attempt))) return;
  UniqueFd folder = move_away(attempt, log_folder);
  if (running_ == attempt) running_.clear();
  if (!folder) {
    senders_.erase(attempt);
    done_.insert(attempt);
    return;
  }
  if (!senders_.contains(attempt)) {
    start(attempt, LogSender(attempt, UniqueFd(::fcntl(folder.get(), F_DUPFD_CLOEXEC, 0)), 0));
  }
  senders_.at(attempt).seal(std::move(folder));
}

UniqueFd LogDeliveries::move_away(const std::string& attempt, const fs::path& log_folder) {
  const fs::path sealed = folders_.undelivered() / attempt;
  std::error_code failure;
  if (fs::exists(fs::symlink_status(sealed, failure))) return open_folder(sealed);
  fs::create_directories(folders_.undelivered(), failure);
  // What lies in its place while another attempt runs may be that one's.
  const bool is_its_own = running_.empty() || running_ == attempt;
  const UniqueFd above = is_its_own ? open_in_root(log_folder.parent_path()) : UniqueFd();
  if (above && ::renameat(above.get(), log_folder.filename().c_str(), AT_FDCWD, sealed.c_str()) == 0) {
    if (UniqueFd folder = open_folder(sealed)) return folder;
    fs::remove(sealed, failure);  // The job has put something else in its place.
  } else if (above && errno != ENOENT) {
    logger_->error("the logs of attempt {} cannot be moved: {}", attempt, std::generic_category().message(errno));
  }
  fs::create_directory(sealed, failure);
  return open_folder(sealed);
}

void LogDeliveries::forget(const std::string& attempt) {
  std::error_code ignored;
  if (senders_.contains(attempt)) {
    forgotten_.insert(attempt);
  } else if (done_.erase(attempt) > 0) {
    fs::remove(folders_.undelivered() / attempt, ignored);
  }
}

void LogDeliveries::connected(std::uint64_t window) {
  window_ = window;
  for (auto& [attempt, sender] : senders_) sender.connected(window);
}

bool LogDeliveries::obey(const net::Message& message) {
  if (message.type < message_type::kLogFrom || message.type > message_type::kLogDone) return false;
  if (message.type == message_type::kLogDone) {
    const auto found = senders_.find(orders::attempt_from(message));
    if (found == senders_.end()) return true;
    found->second.done();
    if (!found->second.delivered()) return true;
    const std::string attempt = found->first;
    senders_.erase(found);
    finish(attempt);
    return true;
  }
  const orders::LogPlace place = orders::log_place_from(message);
  const auto found = senders_.find(place.attempt);
  if (found == senders_.end()) return true;
  message.type == message_type::kLogFrom ? found->second.from(place) : found->second.taken(place);
  return true;
}

void LogDeliveries::finish(const std::string& attempt) {
  const fs::path sealed = folders_.undelivered() / attempt;
  try {
    remove_folder(sealed);
  } catch (const Error& error) {
    logger_->warn("{}", error.what());
  }
  std::error_code ignored;
  if (forgotten_.erase(attempt) == 0) {
    fs::create_directory(sealed, ignored);
    done_.insert(attempt);
  }
  delivered_.push_back(attempt);
}

void LogDeliveries::send(orders::MessagePipe& pipe) {
  const auto post = [&](std::uint16_t type, std::span<const std::byte> payload) { pipe.send(type, payload); };
  bool sealed_one = false;
  for (auto& [attempt, sender] : senders_) {
    // One after the other, so that the windows of many do not add up.
    if (attempt != running_ && std::exchange(sealed_one, true)) continue;
    while (pipe.waiting_bytes() < kMostAhead && sender.send_one(post)) {
    }
  }
}

std::vector<std::string> LogDeliveries::take_delivered() { return std::exchange(delivered_, {}); }

const LogSender* LogDeliveries::running() const {
  const auto found = senders_.find(running_);
  return found == senders_.end() ? nullptr : &found->second;
}

int LogDeliveries::changed_fd() const {
  const LogSender* sender = running();
  return sender == nullptr || window_ == 0 || !sender->next_look().passed() ? -1 : sender->changed_fd();
}

std::optional<Deadline> LogDeliveries::next_look() const {
  if (awaited_) return Deadline::after(kBetweenTries);
  const LogSender* sender = running();
  // Until then nothing is polled.
  if (sender == nullptr || window_ == 0 || sender->next_look().passed()) return std::nullopt;
  return sender->next_look();
}

void LogDeliveries::look() {
  if (awaited_) {
    const Awaited awaited = *awaited_;
    follow(awaited.attempt, awaited.folder, awaited.most_bytes);
  }
  const auto found = senders_.find(running_);
  if (found != senders_.end() && found->second.next_look().passed()) found->second.look();
}

}  // namespace gyre::jobs::node::internal
