#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "gyre/base/timeline.h"

namespace gyre::engine {

/// What one engine writes into its job's timeline. Rows of a process set, which has an engine of
/// its own, bear the set's name: "process_set.1: allreduce.x". Thread-safe.
class TimelineRows {
 public:
  explicit TimelineRows(std::shared_ptr<Timeline> timeline) : timeline_(std::move(timeline)) {}
  TimelineRows of_process_set(std::string_view name) const;

  bool enabled() const { return timeline_->enabled(); }
  /// As those of Timeline.
  void begin(std::string_view tensor, std::string_view phase) const;
  void end(std::string_view tensor) const;
  void instant(std::string_view tensor, std::string_view what) const;
  void add(std::string_view tensor, const PastPhase& phase) const;
  void mark_cycle() const { timeline_->mark_cycle(); }

 private:
  std::string row(std::string_view tensor) const;

  std::shared_ptr<Timeline> timeline_;
  std::string prefix_;
};

}  // namespace gyre::engine
