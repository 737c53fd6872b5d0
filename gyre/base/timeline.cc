#include "gyre/base/timeline.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"

namespace gyre {
namespace {

/// Events that wait for the disk; more are counted and dropped rather than slowing the training.
constexpr std::size_t kMostQueuedEvents = 1U << 18;
/// One write touches two pages at most.
constexpr std::size_t kBatchBytes = 4096;

std::string json_text(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// "GROUP" of "collective 17 of GROUP", also behind the name of a process set; else nothing.
std::optional<std::string_view> group_in(std::string_view name) {
  constexpr std::string_view kBeginning = "collective ";
  constexpr std::string_view kMiddle = " of ";
  const std::size_t beginning = name.find(kBeginning);
  if (beginning == std::string_view::npos) return std::nullopt;
  if (beginning != 0 && !name.substr(0, beginning).ends_with(": ")) return std::nullopt;
  const std::size_t number = beginning + kBeginning.size();
  const std::size_t end = name.find_first_not_of("0123456789", number);
  if (end == number || end == std::string_view::npos || !name.substr(end).starts_with(kMiddle)) return std::nullopt;
  std::string_view group = name.substr(end + kMiddle.size());
  // One of several operations that make up a collective: "… of process group 'world'.0".
  const std::size_t quote = group.rfind("'.");
  if (quote != std::string_view::npos) group = group.substr(0, quote + 1);
  return group;
}

}  // namespace

void Timeline::start(const std::filesystem::path& path, bool mark_cycles, std::int64_t most_bytes) {
  const MutexLock control(control_mutex_);
  stop_running();  // Under the same lock: of two threads that start one, each ends the other's.
  file_.emplace(path, fmt::format("{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{{\"name\":\"gyre\","
                                  "\"start_time_since_epoch_in_micros\":{}}}}}",
                                  wall_clock_us()));
  most_bytes_ = most_bytes;
  {
    const MutexLock lock(mutex_);
    queue_.clear();
    rows_.clear();
    under_way_.clear();
    lines_.clear();
    dropped_ = 0;
    stopping_ = false;
    started_ = SteadyClock::now();
  }
  mark_cycles_ = mark_cycles;
  writer_ = start_thread("the timeline", [this] { write_loop(); });
  enabled_ = true;
}

void Timeline::stop() {
  const MutexLock control(control_mutex_);
  stop_running();
}

void Timeline::stop_running() {
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

bool Timeline::has_room() {
  if (queue_.size() < kMostQueuedEvents) return true;
  ++dropped_;
  return false;
}

void Timeline::add(std::string_view row, const PastPhase& phase) {
  if (!enabled()) return;
  const MutexLock lock(mutex_);
  if (phase.began < started_ || !has_room()) return;
  const bool writer_sleeps = queue_.empty();
  // Both ends are rounded alike, so that what lies within another phase does so still.
  const auto microseconds = [started = started_](SteadyClock::time_point when) {
    return std::chrono::duration_cast<std::chrono::microseconds>(when - started).count();
  };
  const std::int64_t began_us = microseconds(phase.began);
  std::string event = fmt::format(R"({{"ph":"X","pid":{},"tid":0,"ts":{},"dur":{},"name":{})", row_of(row, began_us),
                                  began_us, microseconds(phase.began + phase.lasted) - began_us, json_text(phase.name));
  if (!phase.detail.empty()) event += fmt::format(R"(,"args":{{"detail":{}}})", json_text(phase.detail));
  event += '}';
  queue_.push_back(std::move(event));
  if (writer_sleeps) changed_.notify_all();
}

void Timeline::append(std::string_view tensor, char phase, std::string_view name) {
  const MutexLock lock(mutex_);
  if (!has_room()) return;
  const bool writer_sleeps = queue_.empty();
  const auto now_us = std::chrono::duration_cast<std::chrono::microseconds>(SteadyClock::now() - started_).count();
  const std::optional<std::string_view> group = group_in(tensor);
  const int row = tensor.empty() ? 0 : row_of(group.value_or(tensor), now_us);
  const int line = group ? line_of(tensor, *group, phase) : 0;
  std::string event = fmt::format(R"({{"ph":"{}","pid":{},"tid":{},"ts":{})", phase, row, line, now_us);
  if (!name.empty()) event += fmt::format(R"(,"name":{})", json_text(name));
  if (phase == 'i') event += R"(,"s":"p")";
  if (group && phase == 'B') event += fmt::format(R"(,"args":{{"collective":{}}})", json_text(tensor));
  event += '}';
  queue_.push_back(std::move(event));
  if (writer_sleeps) changed_.notify_all();
}

int Timeline::line_of(std::string_view tensor, std::string_view row, char phase) {
  const auto known = under_way_.find(std::string(tensor));
  if (phase != 'B') {
    if (known == under_way_.end()) return 0;  // A rank's announcement that came before this rank's own.
    const int line = known->second.line;
    if (phase == 'E' && --known->second.open_phases == 0) {
      lines_[std::string(row)][static_cast<std::size_t>(line)] = false;
      under_way_.erase(known);
    }
    return line;
  }
  if (known != under_way_.end()) {
    ++known->second.open_phases;
    return known->second.line;
  }
  std::vector<bool>& taken = lines_[std::string(row)];
  const auto line = static_cast<std::size_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
  if (line == taken.size()) taken.push_back(false);
  taken[line] = true;
  under_way_.emplace(tensor, UnderWay{static_cast<int>(line), 1});
  return static_cast<int>(line);
}

int Timeline::row_of(std::string_view row, std::int64_t now_us) {
  const auto [found, added] = rows_.try_emplace(std::string(row), static_cast<int>(rows_.size()) + 1);
  if (added) {
    queue_.push_back(fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"ts":{},"args":{{"name":{}}}}})",
                                 found->second, now_us, json_text(row)));
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
        logger_->warn("the timeline dropped {} events: the disk does not keep up", dropped_);
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
  if (most_bytes_ > 0 && file_->bytes() + static_cast<std::int64_t>(events.size()) > most_bytes_) {
    logger_->warn("the timeline ends here: it has the {} bytes that it may have", most_bytes_);
    enabled_ = false;
    file_.reset();
    return;
  }
  try {
    file_->append(events);
  } catch (const Error& error) {
    logger_->warn("the timeline ends here: {}", error.what());
    enabled_ = false;
    file_.reset();
  }
}

std::shared_ptr<Timeline> start_timeline(const std::filesystem::path& path, Logger logger) {
  if (path.empty()) return nullptr;
  auto timeline = std::make_shared<Timeline>(std::move(logger));
  timeline->start(path, false);
  return timeline;
}

}  // namespace gyre
