#pragma once

#include <optional>

#include "gyre/base/clock.h"
#include "gyre/jobs/node/internal/commands.h"
#include "gyre/jobs/node/internal/saved_attempt.h"

namespace gyre::jobs::node::internal {

/// Why the attempt has to end now: somebody has asked for it, or its time is over. Nothing: it may go on.
std::optional<orders::StopReason> must_stop(const Commands& commands, const SavedAttempt& state);

/// Sleeps until a command comes, or the deadline. Throws LeaveNow when the attempt is to be left as it is.
void wait_for_command(const Commands& commands, Deadline deadline);

/// Whichever passes first.
Deadline earlier(Deadline a, Deadline b);

}  // namespace gyre::jobs::node::internal
