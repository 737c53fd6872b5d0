#pragma once

#include <vector>

#include "gyre/jobs/scheduler/decide.h"
#include "gyre/jobs/scheduler/internal/ledger.h"

namespace gyre::jobs::scheduler {

/// How many nodes the cluster should have now.
int target_node_count(const Ledger& ledger, const Cluster& cluster);

/// The most nodes that the cluster may ever have as it is configured.
int largest_node_count(const Cluster& cluster);

/// Moves the cluster towards its target: allocates, releases nodes without a job and, where a person shrinks it and
/// says so, ends jobs. The ledger no longer offers released nodes.
void resize(Ledger& ledger, const Cluster& cluster, std::vector<Decision>& decisions);

}  // namespace gyre::jobs::scheduler
