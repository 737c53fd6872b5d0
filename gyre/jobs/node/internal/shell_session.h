#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/net/handshake.h"

namespace gyre::jobs::node::internal {

/// Types of the messages between `ssh` and a node's shell server.
namespace shell_message {
constexpr std::uint16_t kCommand = 1;   ///< -> server; text.
constexpr std::uint16_t kInput = 2;     ///< -> server; bytes for stdin.
constexpr std::uint16_t kInputEnd = 3;  ///< -> server.
constexpr std::uint16_t kOutput = 4;    ///< -> client; bytes of stdout.
constexpr std::uint16_t kError = 5;     ///< -> client; bytes of stderr.
constexpr std::uint16_t kExit = 6;      ///< -> client; u32, the last message.
}  // namespace shell_message

/// One command, from the handshake to its exit code. `node`: which of the job's nodes this is. Returns what this
/// process should exit with.
int serve_shell_session(UniqueFd connection, const net::JobKey& key, std::uint32_t node,
                        const std::vector<std::string>& environment);

}  // namespace gyre::jobs::node::internal
