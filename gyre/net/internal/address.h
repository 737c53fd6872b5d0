#pragma once

#include <sys/socket.h>

#include <functional>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/net/endpoint.h"

// What socket.cc and connect.cc share.
namespace gyre::net::internal {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

struct Resolution {
  std::vector<Address> addresses;
  int failure = 0;  ///< Of getaddrinfo.
};

/// The addresses of an endpoint, the families in turns, beginning with that of the first one. EAI_AGAIN when the
/// deadline has passed.
Resolution resolve(const Endpoint& endpoint, Deadline deadline);
/// What `look_up` returns, or EAI_AGAIN once the deadline has passed: it then goes on, on a thread of its own, and its
/// answer is dropped. (getaddrinfo knows no deadline and cannot be cancelled.)
Resolution within(Deadline deadline, const std::function<Resolution()>& look_up);
std::vector<Address> in_turns(const std::vector<Address>& addresses);
Error unknown_host(const Endpoint& endpoint, int failure);

UniqueFd make_socket(int family);
void set_option(int fd, int level, int name, int value, const char* what);
void set_up_connection(int fd, int family);
Endpoint endpoint_of(const Address& address);

/// How connecting to several addresses ended: with a connection, or with the errno of the last try.
struct Connected {
  UniqueFd socket;
  int failure = 0;
};
/// RFC 8305: starts with the first address, goes on with the next one after 250 ms or a failure, and takes the first
/// connection that stands.
Connected connect_to_any(const std::vector<Address>& addresses, Deadline deadline,
                         const std::function<void()>& meanwhile);

}  // namespace gyre::net::internal
