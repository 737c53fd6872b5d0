#pragma once

#include <cstdint>
#include <string>

#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/orders/work_order.h"
#include "gyre/metrics/job_file.h"

// What the ranks of this node measure is kept beside their logs, as a part of what these may have.
namespace gyre::jobs::node::internal {

/// This node's share of what the logs of the job may have; 0: any number.
std::uint64_t share_of_logs(const orders::WorkOrder& order);

/// Where the metrics of this node's ranks go; a quarter of the share at most.
metrics::JobFileOrder metrics_order(const orders::WorkOrder& order, const std::string& log_folder);

/// Says to ranks where their timelines go, if the job wants any; a quarter of the share at most.
void order_timelines(Variables& variables, const orders::WorkOrder& order, const std::string& log_folder);

/// Of the share, what is left for the output of processes (metrics count as such).
std::uint64_t share_of_output(const orders::WorkOrder& order);

}  // namespace gyre::jobs::node::internal
