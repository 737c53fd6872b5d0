#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/agent/node_job.h"

namespace gyre::jobs::agent::internal {

/// The variable that marks every process of an attempt, for as long as it keeps its environment.
constexpr const char* kAttemptVariable = "GYRE_JOB_ATTEMPT";

/// Names in /dev/shm that belong to the user that jobs run as.
std::vector<std::string> shared_memory_of(const std::optional<JobUser>& user);

/// Ends processes of the attempt that are still there and, where jobs have a user of their own, removes shared memory
/// that this user has made since `before` and that nobody maps. Returns what there was, in words. When it returns
/// nothing is left, or Error(kTimeout) says what is.
std::vector<std::string> clean_up_after(const std::string& attempt, const std::vector<std::string>& before,
                                        const std::optional<JobUser>& user, Deadline deadline);

}  // namespace gyre::jobs::agent::internal
