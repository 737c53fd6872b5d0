#include "gyre/jobs/node/internal/waits.h"

#include <poll.h>

#include "gyre/jobs/node/internal/attempt_ends.h"

namespace gyre::jobs::node::internal {

using orders::StopReason;

std::optional<StopReason> must_stop(const Commands& commands, const SavedAttempt& state) {
  if (const auto command = commands.stopping()) return command->reason;
  if (wall_clock_limit(state).passed()) return StopReason::kWallClock;
  return std::nullopt;
}

void wait_for_command(const Commands& commands, Deadline deadline) {
  pollfd wait{.fd = commands.fd(), .events = POLLIN, .revents = 0};
  ::poll(&wait, 1, deadline.poll_timeout_ms());
  commands.clear();
  if (commands.leaving()) throw LeaveNow();
}

Deadline earlier(Deadline a, Deadline b) {
  if (!a.when()) return b;
  return b.when() && *b.when() < *a.when() ? b : a;
}

}  // namespace gyre::jobs::node::internal
