#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/process.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node::internal {

/// The variable that marks every process of an attempt, for as long as it keeps its environment.
constexpr const char* kAttemptVariable = "GYRE_JOB_ATTEMPT";
/// The variable that names the node that started it.
constexpr const char* kNodeVariable = "GYRE_JOB_NODE";

/// The variable that marks the first process of a container, by the folder of the node that has started it. It does not
/// have the others, so that the attempt does not try to kill it from inside.
constexpr const char* kContainerVariable = "GYRE_JOB_CONTAINER";

/// The variable that marks every process of a command that a user has started in a job (ADR 137), by shell_mark(). They
/// have the marks of the attempt too.
constexpr const char* kShellVariable = "GYRE_JOB_SHELL";
/// "NAME=VALUE". Of the order's attempt on its node.
std::string shell_mark(const orders::WorkOrder& order);

/// Names in /dev/shm that belong to a user.
std::vector<std::string> shared_memory_of(uid_t user);

/// Ends processes of commands that users have started in the attempt, of which it says nothing. Then ends processes of
/// the order's attempt that are still there, but not those that other nodes on this machine have started and have not
/// ended yet, and, where jobs have a user of their own, removes shared memory that this user has made since `before`
/// and that nobody maps. Returns what there was, in words. When it returns nothing is left, or Error(kTimeout) says
/// what is.
std::vector<std::string> clean_up_after(const orders::WorkOrder& order, const std::vector<std::string>& before,
                                        const std::optional<UserId>& account, Deadline deadline);

}  // namespace gyre::jobs::node::internal
