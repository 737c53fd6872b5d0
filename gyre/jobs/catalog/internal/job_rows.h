#pragma once

#include <string>

#include "gyre/jobs/catalog/internal/store.h"
#include "gyre/jobs/catalog/jobs.h"

namespace gyre::jobs::catalog {

/// Up to and including "WHERE ".
std::string select_jobs();
Job read_job(const Query& row);
Job get_job(Store& store, Id id);

/// The statement of Jobs::list: ?1 and ?2 as of paged(), ?3 the workspace, experiment or cluster, ?4 the state. Error
/// (kInvalidArgument) for a filter with more than one of them.
std::string list_jobs_statement(const JobFilter& filter, const PageRequest& request);

}  // namespace gyre::jobs::catalog
