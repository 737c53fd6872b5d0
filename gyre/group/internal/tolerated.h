#pragma once

#include "gyre/base/error.h"

namespace gyre::group {

/// Whether a group that goes on when a rank dies (Group::tolerate_losses) also goes on when that rank gives abort()
/// such a reason: where the rank has lost others or is going away. Any other reason is a failure of its work, which
/// would be hidden if the others went on: training that diverges, a file that cannot be read, a defect.
constexpr bool is_tolerated(ErrorCode reason) {
  return reason == ErrorCode::kPeerLost || reason == ErrorCode::kPeerLeft || reason == ErrorCode::kAborted;
}

}  // namespace gyre::group
