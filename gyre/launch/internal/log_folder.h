#pragma once

#include <filesystem>
#include <string>

#include "gyre/base/file.h"
#include "gyre/launch/internal/own_ranks.h"

namespace gyre::launch {

/// "rank-3.log".
std::string log_name(int rank);

/// Makes the folder. Logs of an earlier job that lie there are renamed, rank-3.log to rank-3.log.1, all of them with
/// one number that is free: those of `own`, which this launcher is about to write, and on rank 0's host those of ranks
/// that the job does not have. Files that are empty, and what is no plain file (a link to a terminal, say), stay.
/// Returns that number; 0 when nothing was renamed. Error(kIo, …).
int prepare_log_folder(const std::filesystem::path& folder, const OwnRanks& own);

/// Opens a log for appending. Error(kIo, …).
UniqueFd open_log(const std::filesystem::path& path);

}  // namespace gyre::launch
