#pragma once

#include <string>
#include <vector>

#include "gyre/jobs/drivers/ssh/options.h"
#include "gyre/net/endpoint.h"

namespace gyre::jobs::drivers::ssh {

/// One node of a request, as its host is told.
struct Node {
  std::string program;  ///< The name under which it registers.
  std::string root;     ///< Its own folder.
  net::Endpoint service;
};

/// Has `$cache` of a host's shell be where the copy of our program is kept, which the accounts that jobs have must be
/// able to read: root's home is closed to them.
inline constexpr const char* kCacheFolder =
    R"sh(cache=${XDG_CACHE_HOME:-}; [ -n "$cache" ] || cache=/var/cache; [ "$(id -u)" = 0 ] || cache=${XDG_CACHE_HOME:-$HOME/.cache})sh";

// What the shell of a host reads from ssh. Each prints "here" at once, "runs" when it has found the agent there, and at
// the end "over", with the agent's exit code where it knows that; "no agent", with its exit code, in place of "over":
// the program has ended without having begun to work. Pure.

/// Starts the agent, detached from the connection, where it does not run yet. "missing" in place of "runs": there is no
/// `program`. `key`: 64 digits; no argument of a command has it.
std::string start_script(const SshOptions& options, const Node& node, const std::string& program,
                         const std::string& key);
/// Only looks on.
std::string watch_script(const Node& node);
/// Ends it, with all that it has started.
std::string end_script(const Node& node);
/// The command that reads an archive of our program from its stdin, and keeps it where copied_program() is.
std::string copy_command(const std::string& sha256);
std::string copied_program(const std::string& sha256);

/// As one word of a shell.
std::string quoted(const std::string& text);

}  // namespace gyre::jobs::drivers::ssh
