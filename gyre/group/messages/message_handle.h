#pragma once

#include "gyre/base/completion.h"

namespace gyre::group {

/// The outcome of a message that has arrived.
struct Arrival {
  int source = -1;  ///< The rank that sent it; -1 at the sender.
};

/// The outcome of one send or receive, now or later.
using MessageHandle = Completion<Arrival>;

}  // namespace gyre::group
