#pragma once

#include <string>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/engine/request.h"
#include "gyre/group/group.h"

namespace gyre::engine::internal {

/// What to think of when a rank has left in good order while others need it; ends a message.
constexpr std::string_view kLeftEarly =
    "Probably it had fewer batches than the others: give every rank the same number, or let a rank that has none left "
    "call join() (with DistributedDataParallel: `with model.join()`). Or this is a collective that only some ranks "
    "call (evaluation on rank 0, say): call it on all ranks";

/// A name as messages show it: in quotes, or in plain words where the engine or torch's process groups made it:
/// "collective 7 of process group '0'", "the agreement about gradient exchange 'optimizer.1'".
std::string shown_name(const std::string& name);
/// "allreduce 'loss'", "collective 7 of process group '0' (allreduce)".
std::string describe_operation(OperationKind kind, const std::string& name);
/// The same, and how many more share its bucket.
std::string describe_operation(const Request& request, std::size_t others = 0);

/// `cause`, which ended the collective `what` on this rank, in words that people know it by. Once the group has failed
/// the cause is its reason, which says so already.
Error name_collective(const std::exception& cause, const std::string& what, group::Group& group);

}  // namespace gyre::engine::internal
