#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::spec {

inline constexpr int kMostProcessesPerNode = 1'000;

/// A job without a file: `-- python train.py`, as typed.
struct CommandJob {
  std::vector<std::string>
      program;  ///< At least one; no shell reads them; GyreSettings says which variables are expanded.
  int nodes = 1;
  int processes_per_node = 1;
  int restarts = 0;
  std::optional<int> retries;
  int servers = 0;
  std::optional<std::string> preparation;  ///< A shell line.
  std::optional<PythonRequirements> requirements;
  std::vector<EnvironmentVariable> environment;
};

/// The job that a file with the block `gyreSettings` describes. Error(kInvalidArgument) where such a file would be
/// refused; it names the option by the property.
JobSpec job_of_command(const CommandJob& command);

}  // namespace gyre::jobs::spec
