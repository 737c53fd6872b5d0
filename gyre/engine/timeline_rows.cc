#include "gyre/engine/timeline_rows.h"

#include <fmt/format.h>

namespace gyre::engine {

TimelineRows TimelineRows::of_process_set(std::string_view name) const {
  TimelineRows rows = *this;
  rows.prefix_ += fmt::format("{}: ", name);
  return rows;
}

std::string TimelineRows::row(std::string_view tensor) const { return fmt::format("{}{}", prefix_, tensor); }

void TimelineRows::begin(std::string_view tensor, std::string_view phase) const {
  if (enabled()) timeline_->begin(row(tensor), phase);
}

void TimelineRows::end(std::string_view tensor) const {
  if (enabled()) timeline_->end(row(tensor));
}

void TimelineRows::instant(std::string_view tensor, std::string_view what) const {
  if (enabled()) timeline_->instant(row(tensor), what);
}

void TimelineRows::add(std::string_view tensor, const PastPhase& phase) const {
  if (enabled()) timeline_->add(row(tensor), phase);
}

}  // namespace gyre::engine
