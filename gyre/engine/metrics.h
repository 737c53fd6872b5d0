#pragma once

#include <vector>

#include "gyre/engine/statistics.h"
#include "gyre/group/launched_metrics.h"
#include "gyre/metrics/pipe.h"

namespace gyre::engine {

/// What the exchange of one rank's engines has cost since they were made, as metrics of a job: bytes, and seconds of
/// waiting, exchange and what of it the training waited for; over all lanes and plans that are known.
class Costs {
 public:
  void add(const EngineStatistics& statistics);
  /// Their names are literals.
  std::vector<metrics::Value> values() const;

 private:
  double sent_bytes_ = 0;
  double received_bytes_ = 0;
  double waiting_seconds_ = 0;
  double steps_ = 0;
  double exchange_seconds_ = 0;
  double hidden_seconds_ = 0;
  double exposed_seconds_ = 0;
};

/// Those of one engine.
std::vector<metrics::Value> metrics_of(const EngineStatistics& statistics);

}  // namespace gyre::engine
