#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::jobs::node::internal {

// What a shell line will do, as far as its words tell. Both functions take variables as expanded, and are pure.

/// The package manager that `shell_text` (a line, or a whole script) calls in a way that only root can: "apt-get".
/// Nothing for calls through sudo, for calls that only look (`apt list`, `dpkg -l`, `apt-get -s install`), for those
/// that depend on who runs them (`[ $(id -u) = 0 ] && apt-get install …`), for the lines of a here-document that no
/// shell reads, and for pip and conda, which install for the account that calls them.
std::optional<std::string> package_manager_for_root(std::string_view shell_text);

/// The shell scripts that a line runs: `dir/prep.sh`, `bash prep.sh`, `. prep.sh`; in order. They may not exist.
std::vector<std::string> scripts_of(std::string_view shell_line);

}  // namespace gyre::jobs::node::internal
