#pragma once

#include <filesystem>
#include <string>

#include "gyre/base/file.h"

namespace gyre::launch {

/// "rank-3.log".
std::string log_name(int rank);

/// Which log files a launcher writes: those of `count` ranks from `first_rank` on, of a job of `size` ranks.
struct LogRanks {
  int first_rank = 0;
  int count = 1;
  int size = 1;
};

/// Makes the folder. Logs of an earlier job that lie there are renamed, rank-3.log to rank-3.log.1, all of them with
/// one number that is free: those that this launcher is about to write, and on the first host those of ranks that the
/// job does not have. Files that are empty, and what is no plain file (a link to a terminal, say), stay. Returns that
/// number; 0 when nothing was renamed. Error(kIo, …).
int prepare_log_folder(const std::filesystem::path& folder, const LogRanks& ranks);

/// Opens a log for appending. Error(kIo, …).
UniqueFd open_log(const std::filesystem::path& path);

}  // namespace gyre::launch
