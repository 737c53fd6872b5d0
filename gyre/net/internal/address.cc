#include "gyre/net/internal/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gyre/base/fork.h"
#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"

namespace gyre::net::internal {
namespace {

constexpr int kKeepAliveIdleSeconds = 5;
constexpr int kKeepAliveIntervalSeconds = 2;
constexpr int kKeepAliveProbes = 3;

Address unix_address(const std::string& name) {
  Address address;
  auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
  un->sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof(un->sun_path)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is empty or too long for a unix socket", name));
  }
  std::memcpy(un->sun_path, name.data(), name.size());
  const bool abstract = name[0] == '@';
  if (abstract) un->sun_path[0] = '\0';
  // An abstract name is exactly as long as it says; a path ends with its zero.
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1));
  return address;
}

Resolution look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const int failure = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failure != 0) return {{}, failure};
  Resolution result;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    Address address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    result.addresses.push_back(address);
  }
  ::freeaddrinfo(list);
  return result;
}

/// Shared by the thread that looks up and the one that waits for it.
struct Answer {
  Mutex mutex;
  ConditionVariable arrived;
  std::optional<Resolution> resolution GYRE_GUARDED_BY(mutex);
};

}  // namespace

Resolution within(Deadline deadline, const std::function<Resolution()>& look_up) {
  const auto answer = std::make_shared<Answer>();
  start_thread("the look-up of a host's address", [answer, look_up] {
    Resolution found = look_up();
    const MutexLock lock(answer->mutex);
    answer->resolution = std::move(found);
    answer->arrived.notify_all();
  }).detach();
  const MutexLock lock(answer->mutex);
  while (!answer->resolution && !deadline.passed()) {
    if (deadline.when()) {
      answer->arrived.wait_until(answer->mutex, *deadline.when());
    } else {
      answer->arrived.wait(answer->mutex);
    }
  }
  return answer->resolution.value_or(Resolution{{}, EAI_AGAIN});
}

Resolution resolve(const Endpoint& endpoint, Deadline deadline) {
  if (endpoint.kind == Endpoint::Kind::kUnix) return {{unix_address(endpoint.host)}, 0};
  Resolution found = look_up(endpoint.host, endpoint.port, AI_NUMERICHOST);
  if (found.failure == EAI_NONAME) {
    found = within(deadline, [host = endpoint.host, port = endpoint.port] { return look_up(host, port, 0); });
  }
  found.addresses = in_turns(found.addresses);
  return found;
}

std::vector<Address> in_turns(const std::vector<Address>& addresses) {
  std::vector<Address> turns;
  std::vector<Address> others;
  for (const Address& address : addresses) {
    (address.family() == addresses.front().family() ? turns : others).push_back(address);
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    turns.insert(turns.begin() + static_cast<std::ptrdiff_t>(std::min(2 * i + 1, turns.size())), others[i]);
  }
  return turns;
}

Error unknown_host(const Endpoint& endpoint, int failure) {
  return {ErrorCode::kNotFound, fmt::format("{}: the host name cannot be resolved: {}", to_string(endpoint),
                                            failure == 0 ? "no address" : ::gai_strerror(failure))};
}

UniqueFd make_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw system_error("socket", errno);
  close_in_forks(fd.get());
  return fd;
}

void set_option(int fd, int level, int name, int value, const char* what) {
  if (::setsockopt(fd, level, name, &value, sizeof(value)) != 0) throw system_error(what, errno);
}

void set_up_connection(int fd, int family) {
  if (family == AF_UNIX) return;
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds, "TCP_KEEPIDLE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds, "TCP_KEEPINTVL");
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes, "TCP_KEEPCNT");
}

Endpoint endpoint_of(const Address& address) {
  if (address.family() == AF_UNIX) {
    const auto* un = reinterpret_cast<const sockaddr_un*>(&address.storage);
    std::string name(un->sun_path, address.length - offsetof(sockaddr_un, sun_path));
    if (!name.empty() && name[0] == '\0') {
      name[0] = '@';
    } else {
      name.resize(std::strlen(name.c_str()));
    }
    return {Endpoint::Kind::kUnix, name, 0};
  }
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int failure = ::getnameinfo(address.get(), address.length, host, sizeof(host), port, sizeof(port),
                                    NI_NUMERICHOST | NI_NUMERICSERV);
  if (failure != 0) {
    throw Error(ErrorCode::kIo, fmt::format("reading a socket's address: {}", ::gai_strerror(failure)));
  }
  return {Endpoint::Kind::kTcp, host, static_cast<std::uint16_t>(std::stoi(port))};
}

}  // namespace gyre::net::internal
