#include "gyre/jobs/node/code_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <sys/stat.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/jobs/orders/code_stream.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::node {

namespace {

namespace fs = std::filesystem;
namespace message_type = orders::message_type;

constexpr const char* kArchive = ".tar";

}  // namespace

CodeCache::CodeCache(const NodeFolders& folders, std::uint64_t most_bytes, Logger logger)
    : folder_(folders.code_cache()), most_bytes_(most_bytes), logger_(std::move(logger)) {}

fs::path CodeCache::file_of(const std::string& sha256) const { return folder_ / (sha256 + kArchive); }

void CodeCache::want(const std::string& attempt, const std::string& sha256) {
  wanted_ = sha256;
  const bool goes_on = fetch_ && fetch_->sha256() == sha256 && !fetch_->failure();
  if (goes_on) return fetch_->ask_for(attempt);
  fetch_.reset();
  {
    const MutexLock lock(mutex_);
    failure_.reset();
  }
  make_room();
  std::error_code failure;
  const fs::path file = file_of(sha256);
  if (checked_.contains(sha256) && fs::exists(file, failure)) {
    fs::last_write_time(file, fs::file_time_type::clock::now(), failure);
    return;
  }
  fs::create_directories(folder_, failure);
  fs::rename(file, file.string() + ".part", failure);  // To be looked at again.
  fetch_ = std::make_unique<CodeFetch>(attempt, sha256, file);
  if (window_) connected(*window_);
}

void CodeCache::want_again(const std::string& attempt, const std::string& sha256) {
  wanted_ = sha256;
  std::error_code failure;
  if (!fs::exists(file_of(sha256), failure)) want(attempt, sha256);
}

std::optional<UniqueFd> CodeCache::open(const std::string& sha256) const {
  UniqueFd file(::open(file_of(sha256).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file) return file;
  const MutexLock lock(mutex_);
  if (failure_) throw Error(*failure_);
  return std::nullopt;
}

void CodeCache::connected(std::uint64_t window) {
  window_ = window;
  if (!fetch_) return;
  fetch_->connected(window);
  if (window > 0) return;
  fetch_->fail(Error(ErrorCode::kUnsupported,
                     "the service is of an earlier version and sends no code; run the same Gyre on every node"));
}

void CodeCache::disconnected() {
  window_.reset();
  if (fetch_) fetch_->connected(0);
}

bool CodeCache::obey(net::Message& message) {
  if (message.type == message_type::kCodeBytes) {
    orders::CodePiece piece = orders::code_piece_from(std::move(message));
    if (fetch_) fetch_->take(std::move(piece));
    return true;
  }
  if (message.type != message_type::kCodeRefused) return false;
  const orders::CodeRefusal refusal = orders::code_refusal_from(message);
  if (fetch_ && fetch_->sha256() == refusal.sha256) {
    fetch_->fail(Error(ErrorCode::kNotFound, fmt::format("the job's code cannot be had: {}", refusal.why)));
  }
  return true;
}

void CodeCache::send(const CodeFetch::Send& send) {
  while (fetch_ && fetch_->send_one(send)) {
  }
}

bool CodeCache::look() {
  if (!fetch_) return false;
  fetch_->clear_changed();
  const bool is_here = fetch_->is_here();
  const auto failed = fetch_->failure();
  if (!is_here && !failed) return false;
  if (is_here) checked_.insert(wanted_);
  {
    const MutexLock lock(mutex_);
    failure_ = failed;
  }
  fetch_.reset();
  make_room();
  return true;
}

void CodeCache::make_room() const {
  struct Kept {
    fs::path file;
    std::uint64_t bytes;
    fs::file_time_type used;
  };
  std::vector<Kept> others;
  std::uint64_t bytes = 0;
  std::error_code failure;
  for (auto entry = fs::directory_iterator(folder_, failure); !failure && entry != fs::directory_iterator();
       entry.increment(failure)) {
    std::error_code gone;
    const Kept kept{entry->path(), entry->file_size(gone), entry->last_write_time(gone)};
    if (gone) continue;
    bytes += kept.bytes;
    if (!kept.file.filename().string().starts_with(wanted_)) others.push_back(kept);
  }
  std::ranges::sort(others, {}, &Kept::used);
  for (const Kept& kept : others) {
    if (bytes <= most_bytes_) return;
    if (fs::remove(kept.file, failure)) bytes -= kept.bytes;
    if (failure) logger_->warn("cannot remove {}: {}", kept.file.string(), failure.message());
  }
}

}  // namespace gyre::jobs::node
