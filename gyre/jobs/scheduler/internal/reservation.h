#pragma once

#include "gyre/jobs/scheduler/internal/ledger.h"

namespace gyre::jobs::scheduler {

inline constexpr Time kNever = Time::max();

/// When a head will be able to start, and what it leaves to others at that moment.
struct Reservation {
  Demand demand{};
  Time latest = kNever;    ///< If running jobs use up their limits and nothing else comes back.
  Time earliest = kNever;  ///< If all that may come back at an unknown moment came back now.
  int spare_nodes = 0;     ///< Of its cluster, at `latest`.
  int spare_cores = 0;     ///< Of its quota, at `latest`.
};

Reservation reserve(const Ledger& ledger, const Demand& demand);

/// Whether a job that takes `demand` from now until `end` could delay the head beyond the moment at which it would
/// start without that job.
bool could_delay(const Reservation& head, const Demand& demand, Time end);

}  // namespace gyre::jobs::scheduler
