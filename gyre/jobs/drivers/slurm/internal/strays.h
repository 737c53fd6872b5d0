#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "gyre/jobs/drivers/slurm/internal/commands.h"
#include "gyre/jobs/drivers/slurm/internal/script.h"

namespace gyre::jobs::drivers::slurm {

/// Driver::end_strays(): cancels what Slurm has of these jobs, but for the attempts `in_hand` and those of another
/// service with a home in `shared_folder` that answers.
std::string end_strays(const Commands& commands, const std::filesystem::path& shared_folder, const Home& own,
                       const std::set<std::string>& jobs, const std::set<std::string>& in_hand);

}  // namespace gyre::jobs::drivers::slurm
