#pragma once

#include <memory>
#include <optional>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/group/job.h"

namespace gyre::group {

/// A copy of the file in which the launcher notes the ranks that have ended with exit code 0; nothing if the descriptor
/// is no such file (any more): then a rank that never joins is found out by the time limit alone.
std::shared_ptr<UniqueFd> inherited_ended(int descriptor);

/// Why the ranks of `job` can never gather again: the launcher's words about the first of them that has ended; nothing
/// while all may still come.
std::optional<Error> reason_not_to_wait(const Job& job);

}  // namespace gyre::group
