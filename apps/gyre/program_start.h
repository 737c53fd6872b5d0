#pragma once

#include <string>
#include <vector>

namespace gyre::app {

/// Exit code of a command line that cannot be read.
inline constexpr int kUsageExitCode = 2;

/// Opens /dev/null for those of stdin, stdout and stderr that are closed: a descriptor that the program opens must
/// never become one of them.
void ensure_standard_descriptors();

/// All of the process's, as NAME=VALUE.
std::vector<std::string> own_environment();

/// Prints the message and where help is; returns the exit code. `where`: "gyre run", say.
int usage_failure(const std::string& where, const std::string& message);

}  // namespace gyre::app
