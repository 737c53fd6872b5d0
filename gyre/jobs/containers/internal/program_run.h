#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/process.h"
#include "gyre/jobs/containers/container_runtime.h"

namespace gyre::jobs::containers::internal {

struct ProgramOutput {
  ExitStatus status;
  std::string out;
  std::string error;
};

/// Runs a program and collects what it prints, the end of it beyond a limit. Whatever it leaves in the background does
/// not hold up this function. Error(kTimeout) at the deadline, Error(kAborted) if it is to be given up; it is killed
/// then, or, with `end`, once that returns true: it is asked again and again until the program has ended. SpawnError.
ProgramOutput run_program(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                          Deadline deadline, const Interruption& interruption,
                          const std::function<bool(pid_t)>& end = {});

}  // namespace gyre::jobs::containers::internal
