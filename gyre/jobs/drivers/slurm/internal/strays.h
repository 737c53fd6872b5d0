#pragma once

#include <set>
#include <string>

#include "gyre/jobs/drivers/slurm/internal/commands.h"

namespace gyre::jobs::drivers::slurm {

/// Driver::end_strays(): cancels what Slurm has of these jobs, but for the attempts `in_hand` and those of another
/// service than `own` (Service::name) that answers where Slurm's job says that it is.
std::string end_strays(const Commands& commands, const std::string& own, const std::set<std::string>& jobs,
                       const std::set<std::string>& in_hand);

}  // namespace gyre::jobs::drivers::slurm
