#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "gyre/base/file.h"

namespace gyre::jobs::node::internal {

/// MPICH's mpiexec (Hydra), which starts a proxy on each node through a remote shell and waits for ever for one whose
/// shell has failed.
class WaitingLauncher {
 public:
  /// The process that has started this one, where it is a launcher and `command` starts its proxy; else nothing.
  /// `node`: where the command runs, for the sentence.
  static std::optional<WaitingLauncher> of_parent(const std::string& command, std::string node);

  /// The proxy's shell has ended with `exit_code`: not 0. A launcher that ends by itself within `patience` knows of it;
  /// any other is ended, once the reason stands on stderr and in `note`, for text_noted().
  void proxy_failed(int exit_code, const std::filesystem::path& note, std::chrono::milliseconds patience) const;

 private:
  WaitingLauncher(UniqueFd process, std::string node) : process_(std::move(process)), node_(std::move(node)) {}

  UniqueFd process_;
  std::string node_;
};

/// What proxy_failed() or a launcher has noted, for a sentence; empty where there is nothing. The job's user owns the
/// folder: only a plain file of `owner`'s is read, and what it says is shown printable.
std::string text_noted(const std::filesystem::path& note, uid_t owner);

}  // namespace gyre::jobs::node::internal
