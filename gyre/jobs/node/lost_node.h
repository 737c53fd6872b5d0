#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace gyre::jobs::node {

/// An attempt on a node of this machine that counts as lost.
struct LostAttempt {
  std::string attempt;
  std::filesystem::path node_root;
  std::vector<std::string> other_nodes = {};  ///< Of the attempt, on this machine: what they have started is spared.
};

/// Writes down that the service gives the attempt up on this node, before anything of it is ended: a service that
/// starts in between must not begin it there again. Does without where the disk is full.
void mark_lost(const LostAttempt& lost);
/// Whether mark_lost() has written so.
bool is_marked_lost(const std::filesystem::path& node_root, const std::string& attempt);

/// Kills (SIGKILL, which stopped processes obey too) the node's program, its `gyre launch` processes with all that
/// descends from them, and every process that carries the attempt's mark, in this order: nothing that was killed can
/// have started what was not looked at. Returns the processes that it has found; none once nothing of the attempt is
/// left. To be called again until then; waits for a second or two at most. Blocks.
std::vector<pid_t> end_lost_attempt(const LostAttempt& lost);

/// The same for the attempt that a node has in hand, whichever it is, and until nothing is left or ten seconds have
/// passed; the next node program knows nothing of it.
void abandon_attempt(const std::filesystem::path& node_root);

/// Kills the `gyre launch` that listens at the socket, or is about to, and all that descends from it. For one that does
/// not answer. Returns what it has found.
std::vector<pid_t> kill_launch(const std::filesystem::path& socket);

/// Whether process `pid` is the node program that works in `root`, or one that it has just forked. Not if the path
/// leads it to another folder, in a mount namespace of another node of this machine.
bool is_program_of(pid_t pid, const std::filesystem::path& root);

}  // namespace gyre::jobs::node
