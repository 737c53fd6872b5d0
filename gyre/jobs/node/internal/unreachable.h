#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/node/expansion.h"
#include "gyre/jobs/node/node_job.h"

namespace gyre::jobs::node::internal {

/// What of a job names programs, scripts and their arguments: words, or shell lines, before expansion; what is started
/// first. Pure.
std::vector<std::string> program_paths(const spec::JobSpec& job);

/// Why a command that failed may have: "user 'nobody' cannot enter the folder /root, on the way to /root/train.py; …".
/// Looks at each absolute path in `lines`. Nothing where all that is there can be reached.
std::optional<std::string> unreachable(const std::vector<std::string>& lines, const Variables& variables,
                                       const JobUser& user);

/// Where the first word of `line` is not the program that PATH has first, because the user cannot reach that one.
std::optional<std::string> passed_over(const std::string& line, const Variables& variables, const JobUser& user);

}  // namespace gyre::jobs::node::internal
