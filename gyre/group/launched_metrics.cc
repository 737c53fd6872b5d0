#include "gyre/group/launched_metrics.h"

#include <cstdlib>

#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/base/parse.h"
#include "gyre/group/launched_place.h"

namespace gyre::group {

std::shared_ptr<metrics::Logger> metrics_logger_from_environment() {
  const auto descriptor = environment_variable(launch_contract::kMetricsDescriptor);
  const auto rank = environment_variable(launch_contract::kRank);
  if (!descriptor || !rank || !is_started_by_gyre_run()) return nullptr;
  constexpr int kMost = 1 << 24;
  return metrics::Logger::inherited(
      static_cast<int>(parse_integer(*descriptor, launch_contract::kMetricsDescriptor, 0, kMost)),
      static_cast<int>(parse_integer(*rank, launch_contract::kRank, 0, kMost)));
}

}  // namespace gyre::group
