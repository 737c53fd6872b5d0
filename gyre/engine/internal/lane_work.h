#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/engine/timeline_rows.h"
#include "gyre/group/lane.h"

namespace gyre::engine::internal {

/// What threads of the engine and of the program did, in rows of their own of a timeline; the page reads them
/// (page/rank_timeline.h).
constexpr const char* kProgramRow = "gyre: program";
constexpr const char* kOpenRow = "gyre: open lane";
constexpr const char* kWaitPhase = "WAIT_FOR_EXCHANGE";

/// Adds one collective, or several, to a timeline, and how a lane has spent the time: while this lives.
class LaneWork {
 public:
  /// `row`: of this lane alone.
  LaneWork(const group::Lane& lane, const TimelineRows& timeline, std::string row)
      : lane_(lane), timeline_(timeline), is_traced_(timeline.enabled()) {
    if (!is_traced_) return;
    row_ = std::move(row);
    began_ = SteadyClock::now();
    before_ = now();
  }
  ~LaneWork() {
    if (!is_traced_) return;
    const Spent spent = now();
    timeline_.add(row_, {.name = "COLLECTIVE",
                         .began = began_,
                         .lasted = SteadyClock::now() - began_,
                         .detail = fmt::format("wait {} copy {} reduce {} send {}", spent.wait - before_.wait,
                                               spent.copy - before_.copy, spent.reduce - before_.reduce,
                                               spent.send - before_.send)});
  }
  LaneWork(const LaneWork&) = delete;
  LaneWork& operator=(const LaneWork&) = delete;

 private:
  struct Spent {  // Microseconds.
    std::uint64_t wait = 0;
    std::uint64_t copy = 0;
    std::uint64_t reduce = 0;
    std::uint64_t send = 0;
  };
  Spent now() const {
    const group::LaneCounters& counters = lane_.counters();
    const auto microseconds = [](const Counter& counter) { return counter.value() / 1'000; };
    return {microseconds(counters.waiting_ns), microseconds(counters.copying_ns), microseconds(counters.reducing_ns),
            microseconds(counters.sending_ns)};
  }

  const group::Lane& lane_;
  const TimelineRows& timeline_;
  const bool is_traced_;
  std::string row_;
  SteadyClock::time_point began_;
  Spent before_;
};

}  // namespace gyre::engine::internal
