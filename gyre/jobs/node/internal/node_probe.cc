#include "gyre/jobs/node/internal/node_probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/gpus.h"
#include "gyre/base/process.h"
#include "gyre/jobs/node/internal/launch_specification.h"
#include "gyre/jobs/node/internal/mpi_line.h"
#include "gyre/jobs/node/job_environment.h"

namespace gyre::jobs::node::internal {

using orders::Mpi;

namespace {

constexpr int kFirstPort = 2222;
constexpr int kPortsTried = 20'000;
constexpr std::chrono::seconds kLongestProbe{20};
constexpr std::size_t kMostOutputBytes = 8192;
constexpr std::size_t kMostBytesOfFile = std::size_t{64} << 10;

/// What the command prints; empty when it takes too long or cannot be started.
std::string output_of_command(const std::string& line, const Variables& environment, const std::string& folder,
                              std::size_t most_bytes) {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  SpawnOptions options;
  options.argv = {shell_program(), "-c", line};
  options.environment = as_entries(environment);
  options.stdout_fd = write_end.get();
  options.stderr_fd = write_end.get();
  options.own_process_group = true;
  options.folder = folder;
  try {
    const Process process = Process::spawn(options);
    write_end.reset();
    std::string text;
    const Deadline deadline = Deadline::after(kLongestProbe);
    while (text.size() < most_bytes) {
      pollfd wait{.fd = read_end.get(), .events = POLLIN, .revents = 0};
      if (::poll(&wait, 1, deadline.poll_timeout_ms()) <= 0) break;
      std::array<char, 1024> bytes;
      const ssize_t count = ::read(read_end.get(), bytes.data(), bytes.size());
      if (count <= 0) break;
      text.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return text;
  } catch (const Error&) {
    return {};
  }
}

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

Address resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failure != 0 || found == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the node's address '{}' cannot be looked up: {}", host, ::gai_strerror(failure)));
  }
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

void set_port(Address& address, int port) {
  const auto in_network_order = htons(static_cast<std::uint16_t>(port));
  if (address.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = in_network_order;
  } else {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = in_network_order;
  }
}

/// A name that says that a job of ours has the port, on whatever address: a server that listens on every address
/// (TensorFlow's does) takes its port from all nodes that share this network namespace, and two such servers may even
/// share one. Freed by the kernel when the descriptor is closed. Nothing where another job has it.
UniqueFd claim(int port) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) throw system_error("cannot make a socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("gyre/jobs/port/{}", port);
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // After a null byte: abstract, of the namespace.
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return {};
  return socket;
}

}  // namespace

Mpi find_mpi(const Variables& environment) {
  const std::string said =
      output_of_command("command -v mpirun > /dev/null && mpirun --version", environment, "/", kMostOutputBytes);
  if (said.find("Open MPI") != std::string::npos || said.find("OpenRTE") != std::string::npos) return Mpi::kOpenMpi;
  if (said.find("HYDRA") != std::string::npos || said.find("Intel(R) MPI") != std::string::npos) return Mpi::kHydra;
  return Mpi::kNone;
}

std::string beginning_of_file(const std::string& path, const std::filesystem::path& folder) {
  // By a process that ends after a while: the job may put anything there at any moment.
  const std::string file = in_single_quotes(path);
  return output_of_command(
      fmt::format("exec 2> /dev/null; test -f {0} && exec head -c {1} < {0}", file, kMostBytesOfFile),
      {{"PATH", "/usr/bin:/bin"}}, folder.string(), kMostBytesOfFile);
}

int count_gpus(const Variables& environment) {
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  return gyre::count_gpus(visible == environment.end() ? std::nullopt : std::optional(visible->second));
}

PortLease::PortLease(const std::string& address_text, int count) {
  Address address = resolve(address_text);
  for (int port = kFirstPort; port < kFirstPort + kPortsTried && static_cast<int>(ports_.size()) < count; ++port) {
    UniqueFd claimed = claim(port);
    if (!claimed) continue;
    UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) throw system_error("cannot make a socket", errno);
    set_port(address, port);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0) {
      ports_.push_back(port);
      sockets_.push_back(std::move(socket));
      claims_.push_back(std::move(claimed));
    } else if (errno != EADDRINUSE && errno != EACCES) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the node's address {} is not one of this host: {}", address_text, std::strerror(errno)));
    }
  }
  if (static_cast<int>(ports_.size()) < count) {
    throw Error(ErrorCode::kResourceExhausted, fmt::format("{} has fewer than {} free ports between {} and {}",
                                                           address_text, count, kFirstPort, kFirstPort + kPortsTried));
  }
}

}  // namespace gyre::jobs::node::internal
