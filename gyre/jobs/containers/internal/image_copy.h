#pragma once

#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/containers/container_runtime.h"
#include "gyre/jobs/containers/internal/tar_owners.h"

namespace gyre::jobs::containers::internal {

/// Programs between which an archive passes.
struct ArchivePipe {
  std::vector<std::string> from;  ///< Writes it to stdout.
  std::vector<std::string> to;    ///< Reads it from stdin.
  std::vector<std::string> environment;
};

/// Returns what has gone wrong, in the words of these programs; empty: nothing. Error(kTimeout), Error(kAborted),
/// Error(kCorruptData); SpawnError.
std::string pass_archive(const ArchivePipe& pipe, TarOwners& owners, Deadline deadline,
                         const Interruption& interruption);

}  // namespace gyre::jobs::containers::internal
