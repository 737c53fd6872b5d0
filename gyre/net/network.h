#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::net {

/// A range of addresses: "10.0.0.0/8", "fd00::/8", or one address. IPv4 addresses that are mapped into IPv6
/// ("::ffff:10.0.0.1") count as what they stand for.
class Network {
 public:
  /// Error(kInvalidArgument) shows the text and the accepted forms. Bits behind the prefix are ignored.
  explicit Network(std::string_view text);

  /// `address` as peer_endpoint() writes it; false for what is not an address.
  bool contains(std::string_view address) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::array<std::byte, 16> prefix_{};  // IPv4 mapped into IPv6.
  std::size_t bits_ = 0;
};

/// "10.0.0.0/8,fd00::/8". Error(kInvalidArgument) names `what`.
std::vector<Network> parse_networks(std::string_view text, std::string_view what);

/// The first address of this host's network interfaces that are up and that lies in `network`. Error(kInvalidArgument)
/// names `what` and lists the addresses there are.
std::string own_address_in(const Network& network, std::string_view what);

}  // namespace gyre::net
