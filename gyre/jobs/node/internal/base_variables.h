#pragma once

#include <string>

#include "gyre/jobs/node/expansion.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/node/node_job.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node::internal {

/// The environment beneath Batch AI's variables and the job's own: `base`, and where our programs and the job's folders
/// are. Pure.
Variables base_variables(const Variables& base, const std::string& gyre_program, const orders::WorkOrder& order,
                         const NodeFolders& folders);

/// The `base` of a job: the node's, and the job's account where it has one of its own. Pure.
Variables base_of_job(const NodeOptions& options, const orders::WorkOrder& order);

}  // namespace gyre::jobs::node::internal
