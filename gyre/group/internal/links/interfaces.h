#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gyre::group {

/// As many as a member may have endpoints for, beside its unix socket.
constexpr std::size_t kMostInterfaces = 7;

/// "eth0,eth1", each named once. Error(kInvalidArgument) names GYRE_INTERFACES.
std::vector<std::string> parse_interfaces(std::string_view text);

/// The address of a network interface of this host that is up: its first IPv4 address, else its first IPv6 address that
/// other hosts can reach as it stands (not link-local). Error(kInvalidArgument) lists the interfaces that have one.
std::string address_of_interface(const std::string& name);

}  // namespace gyre::group
