#pragma once

#include "gyre/base/completion.h"
#include "gyre/engine/request.h"

namespace gyre::engine {

/// The outcome of one submitted operation, now or later.
using Handle = Completion<Result>;

}  // namespace gyre::engine
