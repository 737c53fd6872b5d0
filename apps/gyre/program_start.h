#pragma once

#include <map>
#include <string>
#include <vector>

namespace gyre::app {

/// Exit code of a command line that cannot be read.
inline constexpr int kUsageExitCode = 2;

/// Opens /dev/null for those of stdin, stdout and stderr that are closed: a descriptor that the program opens must
/// never become one of them.
void ensure_standard_descriptors();

/// What whoever started this process has left open in it, above stderr, does not go on to the programs that it starts:
/// for verbs that run programs of other users.
void keep_inherited_descriptors_here();

/// All of the process's, as NAME=VALUE.
std::vector<std::string> own_environment();

/// The variables of such a list, each by its name.
std::map<std::string, std::string> by_name(const std::vector<std::string>& environment);

/// Prints "WHERE: MESSAGE" and a line break. Throws nothing: a stderr that takes no more changes no exit code.
/// `where`: "gyre run", say.
void print_failure(const std::string& where, const std::string& message);

/// Likewise, and where help is; returns the exit code.
int usage_failure(const std::string& where, const std::string& message);

}  // namespace gyre::app
