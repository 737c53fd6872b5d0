#include "gyre/group/group.h"

#include <fmt/format.h>

namespace gyre::group {

Error Group::cause_of_loss(int peer, const Error& seen) {
  wait_for_cause(peer, 0, Deadline::after(kLongestCauseWait));
  if (auto reason = abort_signal().reason()) return *reason;
  if (has_left(peer)) {
    return {ErrorCode::kPeerLeft,
            fmt::format("{} left the group while rank {} still needed it", topology().describe(peer), rank())};
  }
  return seen;
}

}  // namespace gyre::group
