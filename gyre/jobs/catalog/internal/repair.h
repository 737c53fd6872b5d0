#pragma once

#include <functional>
#include <string>

#include "gyre/jobs/catalog/internal/store.h"

namespace gyre::jobs::catalog {

/// Rows of a damaged file (a disk, or somebody with another program) that would stop every question about them: a state
/// that there is none of, a number of a workspace, experiment or cluster that there is none of, a number of its own
/// after which there are none, or a name that nobody could write. Each gets the value that the rest of it makes most
/// likely, with an event of the reason "repaired"; `repaired` gets the sentence. Where nothing is damaged, nothing is
/// written.
void repair(Store& store, const std::function<void(const std::string&)>& repaired);

}  // namespace gyre::jobs::catalog
