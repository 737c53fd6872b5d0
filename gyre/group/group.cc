#include "gyre/group/group.h"

#include "gyre/group/internal/group_state.h"

namespace gyre::group {

Error Group::cause_of_loss(int peer, const Error& seen) {
  wait_for_cause(peer, 0, Deadline::after(kLongestCauseWait));
  if (auto reason = abort_signal().reason()) return *reason;
  return has_left(peer) ? peer_left(topology(), peer, was_lost(peer)) : seen;
}

}  // namespace gyre::group
