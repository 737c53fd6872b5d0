#include "gyre/group/internal/links/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"

namespace gyre::group {
namespace {

/// Empty when it has none that other hosts can use.
std::string text_of(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address.sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.sa_family == AF_INET6) {
    const in6_addr& wide = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&wide)) bytes = &wide;
  }
  if (bytes == nullptr) return {};
  return ::inet_ntop(address.sa_family, bytes, text.data(), text.size()) != nullptr ? text.data() : "";
}

/// Of all interfaces that are up, by name.
std::map<std::string, std::string> addresses_here() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw system_error("listing the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::map<std::string, std::string> found;
  for (const sa_family_t family : {sa_family_t{AF_INET}, sa_family_t{AF_INET6}}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      const bool is_up = (entry->ifa_flags & IFF_UP) != 0U;
      if (!is_up || entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      const std::string address = text_of(*entry->ifa_addr);
      if (!address.empty()) found.emplace(entry->ifa_name, address);
    }
  }
  return found;
}

}  // namespace

std::vector<std::string> parse_interfaces(std::string_view text) {
  std::vector<std::string> names = split(text, ',');
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (name->empty() || std::find(names.begin(), name, *name) != name) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("GYRE_INTERFACES is '{}'; names of network interfaces are needed, separated by commas, "
                              "each once",
                              text));
    }
  }
  if (names.size() > kMostInterfaces) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("GYRE_INTERFACES names {} network interfaces; at most {} are "
                                                         "possible",
                                                         names.size(), kMostInterfaces));
  }
  return names;
}

std::string address_of_interface(const std::string& name) {
  const std::map<std::string, std::string> addresses = addresses_here();
  const auto found = addresses.find(name);
  if (found != addresses.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [other, address] : addresses) known.push_back(fmt::format("{} ({})", other, address));
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("GYRE_INTERFACES names '{}', but no such network interface is up and has an address here; "
                          "there are: {}",
                          name, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

}  // namespace gyre::group
