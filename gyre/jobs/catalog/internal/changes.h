#pragma once

#include "gyre/jobs/catalog/internal/store.h"

namespace gyre::jobs::catalog {

// Changes that more than one part of the catalog makes, each with its event. All of them are for use within a
// transaction, and refuse what the tables of states.h do not have.

/// `attempt`: the one that the node works for from now on, if any.
void change_node(Store& store, const Node& node, NodeState to, const std::optional<std::string>& attempt,
                 const Cause& cause);

/// Brings start, end, exit code and secrets in line with the new state.
struct JobChange {
  ExecutionState to = ExecutionState::kQueued;
  std::optional<int> exit_code{};
  std::optional<ResourceError> error{};
  std::optional<int> attempt{};  ///< The one that this is about.
  Cause cause{};
};
void change_job(Store& store, const Job& job, const JobChange& change);

/// An event about a job, as yet without states.
Event job_event(const Job& job, std::string subject, const Cause& cause);

/// The attempt of the job that has not ended, if there is one.
std::optional<std::string> unended_attempt(Store& store, Id job);

}  // namespace gyre::jobs::catalog
