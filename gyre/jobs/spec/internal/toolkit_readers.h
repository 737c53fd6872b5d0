#pragma once

#include <optional>

#include "gyre/jobs/spec/command.h"
#include "gyre/jobs/spec/internal/object_reader.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::spec {

inline constexpr int kMostNodes = 10'000;
inline constexpr int kMostProcesses = 100'000;
inline constexpr int kMostServers = 1'000;

/// The one toolkit block among a job's properties. None, or several, is an error.
std::optional<Toolkit> read_toolkit(ObjectReader& properties, int node_count);

}  // namespace gyre::jobs::spec
