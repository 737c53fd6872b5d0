#pragma once

#include <string>

namespace gyre::python {

/// What gyre._program_position.describe() says: EngineOptions::location of a process that runs Python. Takes the GIL,
/// so it returns only when the program lets go of it; empty while the interpreter ends.
std::string find_location();

}  // namespace gyre::python
