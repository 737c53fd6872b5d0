#include "gyre/engine/timeline.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::engine {

namespace {

/// Events that wait for the disk; more are counted and dropped rather than slowing the training.
constexpr std::size_t kMostQueuedEvents = 1U << 18;
/// One write touches two pages at most, so that a kill between them is next to impossible.
constexpr std::size_t kBatchBytes = 4096;
constexpr std::string_view kClosing = "\n]\n";

std::string json_text(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void Timeline::start(const std::filesystem::path& path, bool mark_cycles) {
  stop();
  const MutexLock control(control_mutex_);
  const std::string what = fmt::format("cannot write the timeline {}", path.string());
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) throw system_error(what, errno);
  const std::string header = fmt::format(
      "[\n{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{{\"name\":\"gyre\","
      "\"start_time_since_epoch_in_micros\":{}}}}}",
      wall_clock_us());
  write_all(file.get(), as_bytes(header + std::string(kClosing)), what);
  file_ = std::move(file);
  path_ = path.string();
  end_offset_ = static_cast<std::int64_t>(header.size());
  {
    const MutexLock lock(mutex_);
    queue_.clear();
    rows_.clear();
    dropped_ = 0;
    stopping_ = false;
    started_ = SteadyClock::now();
  }
  mark_cycles_ = mark_cycles;
  enabled_ = true;
  writer_ = std::thread([this] { write_loop(); });
}

void Timeline::stop() {
  const MutexLock control(control_mutex_);
  if (!writer_.joinable()) return;
  enabled_ = false;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  writer_.join();
  file_.reset();
}

void Timeline::begin(std::string_view tensor, std::string_view phase) {
  if (enabled()) append(tensor, 'B', phase);
}

void Timeline::end(std::string_view tensor) {
  if (enabled()) append(tensor, 'E', {});
}

void Timeline::instant(std::string_view tensor, std::string_view what) {
  if (enabled()) append(tensor, 'i', what);
}

void Timeline::mark_cycle() {
  if (enabled() && mark_cycles_) append("", 'i', "CYCLE_START");
}

void Timeline::append(std::string_view tensor, char phase, std::string_view name) {
  const MutexLock lock(mutex_);
  if (queue_.size() >= kMostQueuedEvents) {
    ++dropped_;
    return;
  }
  const bool writer_sleeps = queue_.empty();
  const auto now_us = std::chrono::duration_cast<std::chrono::microseconds>(SteadyClock::now() - started_).count();
  const int row = tensor.empty() ? 0 : row_of(tensor, now_us);
  std::string event = fmt::format(R"({{"ph":"{}","pid":{},"tid":0,"ts":{})", phase, row, now_us);
  if (!name.empty()) event += fmt::format(R"(,"name":{})", json_text(name));
  if (phase == 'i') event += R"(,"s":"p")";
  event += '}';
  queue_.push_back(std::move(event));
  if (writer_sleeps) changed_.notify_all();
}

int Timeline::row_of(std::string_view tensor, std::int64_t now_us) {
  const auto [found, added] = rows_.try_emplace(std::string(tensor), static_cast<int>(rows_.size()) + 1);
  if (added) {
    queue_.push_back(fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"ts":{},"args":{{"name":{}}}}})",
                                 found->second, now_us, json_text(tensor)));
    queue_.push_back(
        fmt::format(R"({{"name":"process_sort_index","ph":"M","pid":{0},"ts":{1},"args":{{"sort_index":{0}}}}})",
                    found->second, now_us));
  }
  return found->second;
}

void Timeline::write_loop() {
  for (;;) {
    std::vector<std::string> events;
    bool last = false;
    {
      const MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.wait(mutex_);
      events = std::exchange(queue_, {});
      last = stopping_;
      if (dropped_ > 0) {
        logger_->warn("the timeline {} dropped {} events: the disk does not keep up", path_, dropped_);
        dropped_ = 0;
      }
    }
    std::string batch;
    for (const std::string& event : events) {
      if (!batch.empty() && batch.size() + event.size() > kBatchBytes) write_events(std::exchange(batch, {}));
      batch += ",\n";
      batch += event;
    }
    if (!batch.empty()) write_events(batch);
    if (last) return;
  }
}

void Timeline::write_events(const std::string& events) {
  if (!file_) return;
  const std::string text = events + std::string(kClosing);
  const ssize_t count = ::pwrite(file_.get(), text.data(), text.size(), end_offset_);
  if (count == static_cast<ssize_t>(text.size())) {
    end_offset_ += static_cast<std::int64_t>(events.size());
    return;
  }
  // A full disk: take the part back, keep what is there valid, and go on without a timeline.
  const int reason = count < 0 ? errno : ENOSPC;
  logger_->warn("the timeline {} ends here: {}", path_, system_error("write", reason).what());
  const bool restored =
      ::ftruncate(file_.get(), end_offset_) == 0 &&
      ::pwrite(file_.get(), kClosing.data(), kClosing.size(), end_offset_) == static_cast<ssize_t>(kClosing.size());
  if (!restored) logger_->warn("the timeline {} lacks its closing bracket", path_);
  enabled_ = false;
  file_.reset();
}

}  // namespace gyre::engine
