#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gyre/engine/options.h"

namespace gyre::python {

/// What gyre._program_position.describe() says: EngineOptions::location of a process that runs Python. Takes the GIL,
/// so it returns only when the program lets go of it; empty while the interpreter ends.
std::string find_location();

/// What gyre._program_position.threads() says, in the same way.
std::vector<engine::ProgramThread> find_threads();

/// EngineOptions::waits of all runtimes of this process: a script may wait in any of its process groups. The exception
/// to "no process-wide state" that the default runtime is, for the same reason.
std::shared_ptr<engine::internal::ProcessWaits> process_waits();

}  // namespace gyre::python
