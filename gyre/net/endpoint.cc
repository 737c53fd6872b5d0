#include "gyre/net/endpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"

namespace gyre::net {
namespace {

/// sockaddr_un holds 108 bytes; a path needs its final zero, an abstract name its leading one.
constexpr std::size_t kLongestUnixName = 107;
constexpr std::size_t kLongestHostName = 255;

[[noreturn]] void throw_bad_endpoint(std::string_view text, std::string_view why) {
  // It may come from a peer, so it is shown without what could confuse a terminal.
  constexpr std::size_t kMostShown = 300;
  std::string shown(text.substr(0, kMostShown));
  std::replace_if(shown.begin(), shown.end(), [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is not an endpoint: {}; write unix:@NAME, unix:/PATH or tcp:HOST:PORT "
                          "(tcp:[ADDRESS]:PORT for IPv6)",
                          shown, why));
}

Endpoint parse_unix(std::string_view text, std::string_view name) {
  if (name.size() < 2 || (name[0] != '@' && name[0] != '/')) throw_bad_endpoint(text, "no @NAME or /PATH");
  if (name.size() > kLongestUnixName) {
    throw_bad_endpoint(text, fmt::format("a unix name has at most {} characters", kLongestUnixName));
  }
  if (name.find('\0') != std::string_view::npos) throw_bad_endpoint(text, "the name contains a zero byte");
  return {Endpoint::Kind::kUnix, std::string(name), 0};
}

Endpoint parse_tcp(std::string_view text, std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) throw_bad_endpoint(text, "the port is missing");
  std::string_view host = address.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty()) throw_bad_endpoint(text, "the host is missing");
  if (host.size() > kLongestHostName) throw_bad_endpoint(text, "the host name is too long");
  if (!bracketed && host.find(':') != std::string_view::npos) {
    throw_bad_endpoint(text, "an IPv6 address needs brackets");
  }
  if (host.find_first_of(std::string_view("[]/ @\0", 6)) != std::string_view::npos) {
    throw_bad_endpoint(text, "the host name contains a character that host names do not have");
  }
  try {
    const auto port = parse_integer(address.substr(colon + 1), "the port", 0, 65535);
    return {Endpoint::Kind::kTcp, std::string(host), static_cast<std::uint16_t>(port)};
  } catch (const Error& error) {
    throw_bad_endpoint(text, error.what());
  }
}

}  // namespace

Endpoint parse_endpoint(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  constexpr std::string_view kTcp = "tcp:";
  if (text.starts_with(kUnix)) return parse_unix(text, text.substr(kUnix.size()));
  if (text.starts_with(kTcp)) return parse_tcp(text, text.substr(kTcp.size()));
  throw_bad_endpoint(text, "it starts with neither unix: nor tcp:");
}

std::string to_string(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::kUnix) return "unix:" + endpoint.host;
  if (endpoint.host.find(':') != std::string::npos) return fmt::format("tcp:[{}]:{}", endpoint.host, endpoint.port);
  return fmt::format("tcp:{}:{}", endpoint.host, endpoint.port);
}

}  // namespace gyre::net
