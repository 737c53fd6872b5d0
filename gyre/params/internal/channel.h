#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "gyre/group/group.h"
#include "gyre/group/messages/message_handle.h"
#include "gyre/params/setup.h"

namespace gyre::params::internal {

/// Of the messages between workers and servers in their group.
inline constexpr std::uint64_t kChannel = 0x70617261;
/// Of the memory that a worker shares with servers.
inline constexpr std::uint64_t values_channel(int worker) { return 0x76616c00 + static_cast<std::uint64_t>(worker); }

/// What a message holds, for people.
std::string describe_message(std::uint8_t type, std::size_t size_bytes);

/// A message that still moves would be written to after its memory is gone: waits for all, then throws the first error.
void wait_for_all(std::span<const group::MessageHandle> handles);

/// Error(kInvalidArgument) where this rank is not what `layout` makes of it.
void check_layout(const group::Group& group, const Layout& layout, bool as_server);

}  // namespace gyre::params::internal
