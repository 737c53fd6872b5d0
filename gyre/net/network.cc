#include "gyre/net/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"

namespace gyre::net {
namespace {

using AddressBytes = std::array<std::byte, 16>;
constexpr std::size_t kIpv4Bytes = 4;
constexpr std::size_t kMappedBits = 96;

AddressBytes mapped(const in_addr& address) {
  AddressBytes bytes{};
  bytes[10] = bytes[11] = std::byte{0xFF};
  std::memcpy(bytes.data() + bytes.size() - kIpv4Bytes, &address, kIpv4Bytes);
  return bytes;
}

AddressBytes bytes_of(const in6_addr& address) {
  AddressBytes bytes;
  std::memcpy(bytes.data(), &address, bytes.size());
  return bytes;
}

struct ParsedAddress {
  AddressBytes bytes;
  bool is_ipv4;
};

std::optional<ParsedAddress> parse_address(std::string_view text) {
  const std::string address(text.substr(0, text.find('%')));  // Without the interface of a link-local one.
  in_addr narrow{};
  if (::inet_pton(AF_INET, address.c_str(), &narrow) == 1) return ParsedAddress{mapped(narrow), true};
  in6_addr wide{};
  if (::inet_pton(AF_INET6, address.c_str(), &wide) == 1) return ParsedAddress{bytes_of(wide), false};
  return std::nullopt;
}

bool same_prefix(const AddressBytes& left, const AddressBytes& right, std::size_t bits) {
  const std::size_t whole = bits / 8;
  if (!std::equal(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(whole), right.begin())) return false;
  if (bits % 8 == 0) return true;
  const auto mask = static_cast<std::byte>(0xFF << (8 - bits % 8));
  return (left[whole] & mask) == (right[whole] & mask);
}

[[noreturn]] void throw_bad_network(std::string_view text, std::string_view why) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is not a network: {}; write ADDRESS or ADDRESS/BITS, such as 10.0.0.0/8 or fd00::/8",
                          text, why));
}

/// Of the interfaces that are up, IPv4 first.
std::vector<std::string> own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw system_error("listing the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<std::string> found;
  for (const sa_family_t family : {sa_family_t{AF_INET}, sa_family_t{AF_INET6}}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if ((entry->ifa_flags & IFF_UP) == 0U || entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) {
        continue;
      }
      std::array<char, INET6_ADDRSTRLEN> text{};
      const void* bytes = family == AF_INET
                              ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(entry->ifa_addr)->sin_addr)
                              : &reinterpret_cast<sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      if (::inet_ntop(family, bytes, text.data(), text.size()) != nullptr) found.emplace_back(text.data());
    }
  }
  return found;
}

}  // namespace

Network::Network(std::string_view text) : text_(text) {
  const std::size_t slash = text.find('/');
  const auto address = parse_address(text.substr(0, slash));
  if (!address) throw_bad_network(text, "there is no IPv4 or IPv6 address");
  prefix_ = address->bytes;
  const std::size_t most = address->is_ipv4 ? 8 * kIpv4Bytes : 8 * prefix_.size();
  const std::size_t first = address->is_ipv4 ? kMappedBits : 0;
  bits_ = first + most;
  if (slash == std::string_view::npos) return;
  try {
    bits_ = first + static_cast<std::size_t>(parse_integer(text.substr(slash + 1), "the number of bits", 0,
                                                           static_cast<std::int64_t>(most)));
  } catch (const Error& error) {
    throw_bad_network(text, error.what());
  }
}

bool Network::contains(std::string_view address) const {
  const auto parsed = parse_address(address);
  return parsed && same_prefix(prefix_, parsed->bytes, bits_);
}

std::vector<Network> parse_networks(std::string_view text, std::string_view what) {
  std::vector<Network> networks;
  try {
    for (const std::string& one : split(text, ',')) networks.emplace_back(one);
  } catch (Error& error) {
    error.add_context(std::string(what));
    throw;
  }
  return networks;
}

std::string own_address_in(const Network& network, std::string_view what) {
  const std::vector<std::string> addresses = own_addresses();
  const auto found = std::find_if(addresses.begin(), addresses.end(),
                                  [&](const std::string& address) { return network.contains(address); });
  // All of 127.0.0.0/8 is this host's, though only one address of it is listed.
  if (found == addresses.end() && Network("127.0.0.0/8").contains(network.text())) return network.text();
  if (found != addresses.end()) return *found;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is '{}', but no network interface of this host has such an address; there are: {}", what,
                          network.text(), fmt::join(addresses, ", ")));
}

}  // namespace gyre::net
