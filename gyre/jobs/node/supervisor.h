#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gyre/base/log.h"

namespace gyre::jobs::node {

struct SupervisorOptions {
  std::vector<std::string> command;      ///< The node program, which must stay in the foreground.
  std::vector<std::string> environment;  ///< The node program's, as "NAME=VALUE".
  std::filesystem::path root;            ///< The node program's --root.
  Logger logger = null_logger();
};

/// What an engine runs on a node in the node program's place: keeps a node program there for as long as it is wanted,
/// and leaves nothing behind.
///
/// * A node program that is killed is started again; one that ends by itself is not.
/// * Everything that node programs start, however it detaches itself, remains a descendant of this process, so that an
///   engine that ends us finds it. When `stop_fd` becomes readable, all of it is killed.
/// * `root` is removed at the end.
///
/// Returns the exit code: the node program's, or 143 after a request to end. Blocks. To be called from a process of one
/// thread.
int supervise(const SupervisorOptions& options, int stop_fd);

}  // namespace gyre::jobs::node
