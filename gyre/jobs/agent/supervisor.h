#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gyre/base/log.h"

namespace gyre::jobs::agent {

struct SupervisorOptions {
  std::vector<std::string> command;      ///< The agent, which must stay in the foreground.
  std::vector<std::string> environment;  ///< The agent's, as "NAME=VALUE".
  std::filesystem::path root;            ///< The agent's --root.
  Logger logger = null_logger();
};

/// What an engine runs on a node in the agent's place: keeps an agent there for as long as it is wanted, and leaves
/// nothing behind.
///
/// * An agent that is killed is started again; one that ends by itself is not.
/// * Everything that agents start, however it detaches itself, remains a descendant of this process, so that an engine
///   that ends us finds it. When `stop_fd` becomes readable, all of it is killed.
/// * `root` is removed at the end.
///
/// Returns the exit code: the agent's, or 143 after a request to end. Blocks. To be called from a process of one
/// thread.
int supervise_agent(const SupervisorOptions& options, int stop_fd);

}  // namespace gyre::jobs::agent
