#pragma once

#include <string>
#include <vector>

/// What a job service is told by the launchers of its jobs, in files that the job's environment ("NAME=VALUE") names.
/// Without these variables, and where the file cannot be written, nothing happens.
namespace gyre::launch {

/// Why no rank could be started, which is no failure of the job; empty: one could (now).
void note_start_failure(const std::vector<std::string>& environment, const std::string& sentence);
/// What of the ranks' output could not be written; empty: nothing.
void note_missing_output(const std::vector<std::string>& environment, const std::string& sentence);

/// The rank that failed first, each time that ranks were started.
void note_failed_rank(const std::vector<std::string>& environment, int rank);

}  // namespace gyre::launch
