#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gyre/params/internal/outbox.h"
#include "gyre/params/internal/pace.h"
#include "gyre/params/internal/shared_values.h"

namespace gyre::params::internal {

/// What is on its way between a server and one worker.
struct Session {
  Outbox outbox;
  Pace pace;
  // Of the worker's own thread:
  bool configured = false;
  std::uint64_t steps = 0;
  std::optional<SharedValues> shared;       // Where the worker is on this host.
  bool in_place = false;                    // The step that it is in.
  bool pulls = false;                       // Parameters, so that the answer has whole tables.
  std::vector<std::vector<float>> answers;  // By block, where the shard's own values do not stay.
};

}  // namespace gyre::params::internal
