#pragma once

#include <string>
#include <vector>

namespace gyre::app {

/// Becomes the Python program behind a verb: `module`'s main(), called with `arguments`. Returns only when there is no
/// Python to run: UsageError says where it was looked for.
///
/// The Python is GYRE_PYTHON, else the one that stands beside this program (where pip installed both), else PATH's.
/// It finds this program in GYRE_PROGRAM.
[[noreturn]] void become_python_verb(const std::string& verb, const std::string& module,
                                     const std::vector<std::string>& arguments, const std::string& called_as);

}  // namespace gyre::app
