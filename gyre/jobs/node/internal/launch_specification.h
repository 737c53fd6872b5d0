#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gyre/jobs/node/launch_plan.h"

namespace gyre::jobs::node::internal {

/// One process for `gyre launch`.
struct Started {
  std::vector<std::string> command;
  Variables environment;
  std::string role = "default";
  int index = 0;
  int role_size = 1;
  std::filesystem::path stdout_file;  ///< Empty: its output becomes records.
  std::filesystem::path stderr_file;
};

/// The command without the variables that `gyre launch` gives to ranks, but for those that the job itself sets: a
/// program that starts ranks of its own must not look like a rank.
std::vector<std::string> without_rank_variables(const std::vector<std::string>& command, const spec::JobSpec& job);

/// bash, or sh where there is none: in small images of containers.
const char* shell_program();

/// Which of the programs that every job needs are missing here, in the job's container: "no /usr/bin/env"; empty: none.
std::string lacks_programs(const spec::JobSpec& job);

/// The line for the shell, as a rank, or without the variables of one.
std::vector<std::string> shell_command(const std::string& line, bool rank, const spec::JobSpec& job);

/// The specification for `gyre launch` (docs/guide/launch.md). Pure.
nlohmann::json launch_specification(const std::vector<Started>& processes, const std::filesystem::path& socket,
                                    const std::string& folder);

/// Adds what makes the processes of `plan` ranks of one job over the order's nodes. Pure.
void add_ranks(nlohmann::json& specification, const orders::WorkOrder& order, const std::vector<NodePlan>& plans);

}  // namespace gyre::jobs::node::internal
