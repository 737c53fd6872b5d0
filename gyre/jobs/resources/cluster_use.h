#pragma once

#include <vector>

#include "gyre/jobs/resources/resources.h"

namespace gyre::jobs::resources {

/// What the nodes of a cluster did over some time, and how many jobs waited for them: averages of parts of equal
/// length, the oldest first.
struct ClusterUse {
  TimeUs begin = 0;
  TimeUs part_us = 0;
  /// What is before is unknown, and its averages mean nothing. `begin`: all is known.
  TimeUs known_from = 0;
  std::vector<double> running{};  ///< Nodes that have a job.
  std::vector<double> idle{};
  std::vector<double> other{};    ///< Nodes that come, go, or cannot be used.
  std::vector<double> waiting{};  ///< Jobs in the queue.
};

}  // namespace gyre::jobs::resources
