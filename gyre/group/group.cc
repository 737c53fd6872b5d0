#include "gyre/group/group.h"

#include <fmt/format.h>

namespace gyre::group {

Error Group::verdict_on(int peer, const Error& seen) {
  wait_for_verdict(peer, 0, Deadline::after(kLongestVerdict));
  if (auto reason = abort_signal().reason()) return *reason;
  if (has_left(peer)) {
    return {ErrorCode::kPeerLeft,
            fmt::format("{} left the group while rank {} still needed it", topology().describe(peer), rank())};
  }
  return seen;
}

}  // namespace gyre::group
