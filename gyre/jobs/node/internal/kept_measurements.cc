#include "gyre/jobs/node/internal/kept_measurements.h"

#include <algorithm>
#include <filesystem>

#include "gyre/jobs/spec/timelines.h"
#include "gyre/metrics/file.h"

namespace gyre::jobs::node::internal {

namespace {

namespace fs = std::filesystem;

/// Of the timelines of a node's ranks, where logs may have any number.
constexpr std::uint64_t kMostTimelineBytes = std::uint64_t{512} << 20;

std::uint64_t quarter_of(std::uint64_t share, std::uint64_t most) {
  return share == 0 ? most : std::min(most, share / 4);
}

}  // namespace

std::uint64_t share_of_logs(const orders::WorkOrder& order) {
  return order.log_bytes == 0 ? 0 : std::max<std::uint64_t>(order.log_bytes / order.nodes.size(), 1);
}

metrics::JobFileOrder metrics_order(const orders::WorkOrder& order, const std::string& log_folder) {
  const metrics::JobFile file{.attempt = order.attempt_number, .node = order.node};
  return {.path = fs::path(log_folder) / name_of(file),
          .most_bytes = quarter_of(share_of_logs(order), metrics::kMostFileBytes)};
}

void order_timelines(Variables& variables, const orders::WorkOrder& order, const std::string& log_folder) {
  if (!spec::asks_for_timelines(order.job)) return;
  variables[metrics::kJobTimelineVariable] =
      text_of(metrics::JobFileOrder{.path = fs::path(log_folder) / metrics::name_of_timelines(order.attempt_number),
                                    .most_bytes = quarter_of(share_of_logs(order), kMostTimelineBytes)});
}

std::uint64_t share_of_output(const orders::WorkOrder& order) {
  const std::uint64_t share = share_of_logs(order);
  return share == 0 || !spec::asks_for_timelines(order.job) ? share : share - quarter_of(share, kMostTimelineBytes);
}

}  // namespace gyre::jobs::node::internal
