#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/file.h"

namespace gyre::jobs::node::internal {

struct Found {
  pid_t pid = 0;
  pid_t parent = 0;
  UniqueFd pidfd;
};

/// Of processes that are there; the descriptor is taken before one is looked at, so that what is killed is what was
/// looked at. None where /proc shows other numbers than ours.
std::vector<Found> processes_where(const std::function<bool(const Found&)>& fits);

/// As which it runs; nothing of one that has just ended. The owner of /proc/PID is root for whoever hides itself.
std::optional<uid_t> account_of(pid_t pid);

/// The words of its command line, each with a line's end before and behind it; nothing of one that has just ended.
std::string words_of(pid_t pid);
bool has_word(const std::string& words, const std::string& word);

/// Whether the process means the same folder by this path. Nodes that share a machine may each have their own there, in
/// mount namespaces of theirs. Yes where that cannot be seen.
bool has_same_folder(pid_t pid, const std::filesystem::path& folder);

/// The attempt that a node program's file of that kind (NodeFolders::current()) is about; empty where that cannot be
/// read.
std::string attempt_in(const std::filesystem::path& file);

}  // namespace gyre::jobs::node::internal
