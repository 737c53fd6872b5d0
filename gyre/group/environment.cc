#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/launch_contract.h"
#include "gyre/base/parse.h"
#include "gyre/base/random.h"
#include "gyre/base/secret_key.h"
#include "gyre/group/internal/ended_ranks.h"
#include "gyre/group/internal/launch.h"
#include "gyre/group/internal/launcher_process.h"
#include "gyre/group/internal/links/interfaces.h"
#include "gyre/group/internal/rendezvous/local_key.h"
#include "gyre/group/job.h"
#include "gyre/net/socket.h"

namespace gyre::group {
namespace {

constexpr std::size_t kLongestKeyFileBytes = 4096;
static_assert(net::kKeyBytes == launch_contract::kKeyBytes);

[[noreturn]] void throw_bad_descriptor(const char* variable, int descriptor, std::string_view why) {
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} is {}, but {}; a program between gyre run and this process closed or replaced it, or this "
                  "process is a child of a rank and no rank itself",
                  variable, descriptor, why));
}

/// pread: the descriptor is shared by all ranks of this host, and so is its position.
net::JobKey key_from_descriptor(int descriptor) {
  net::JobKey key;
  const ssize_t count = ::pread(descriptor, key.data(), key.size(), 0);
  if (count < 0)
    throw_bad_descriptor(launch_contract::kKeyDescriptor, descriptor, system_error("reading it fails", errno).what());
  if (count != static_cast<ssize_t>(key.size())) {
    throw_bad_descriptor(launch_contract::kKeyDescriptor, descriptor,
                         fmt::format("it holds {} bytes instead of {}", count, key.size()));
  }
  return key;
}

/// A key for `purpose` from the secret in the file.
net::JobKey key_from_file(const std::string& path, const std::string& purpose) {
  const std::string name = fmt::format("GYRE_KEY_FILE '{}'", path);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0) throw system_error(name, errno);
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & kOthers) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is not private: it must be a file of the user that runs the job, with no access for "
                            "others (chmod 600)",
                            name));
  }
  Bytes secret = read_secret(file.get(), kLongestKeyFileBytes, name);
  const WipedAtEnd wiped(secret);
  if (secret.size() < net::kKeyBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} bytes; at least {} random ones are needed (head -c 32 /dev/urandom)", name,
                            secret.size(), net::kKeyBytes));
  }
  return derive_key(secret, purpose);
}

std::shared_ptr<UniqueFd> inherited_listener(int descriptor) {
  int listening = 0;
  socklen_t length = sizeof(listening);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || listening == 0) {
    throw_bad_descriptor(launch_contract::kRendezvousDescriptor, descriptor, "it is not a listening socket");
  }
  // A copy: the original stays open, so that this process can join again.
  UniqueFd copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw system_error(launch_contract::kRendezvousDescriptor, errno);
  return std::make_shared<UniqueFd>(std::move(copy));
}

void agree_on_local_key(const std::string& name, Job& job, Deadline deadline) {
  const std::vector<net::Endpoint> places = local_meeting_places(name);
  if (job.rank != 0) {
    job.key = fetch_local_key(places, job.rank, deadline, deadline);
    job.rendezvous = rendezvous_on_this_host(job.key);
    return;
  }
  // A rank that has the key finds rank 0 listening.
  job.key = net::make_random_key();
  job.rendezvous = rendezvous_on_this_host(job.key);
  job.listener = std::make_shared<UniqueFd>(net::listen_on(job.rendezvous));
  hand_out_local_key(listen_for_local_ranks(places), job.size, job.key, deadline);
}

/// The launcher counts workers from 0 and servers after them.
void put_servers_first(Job& job, int servers) {
  if (servers == 0) return;
  const int workers = job.size - servers;
  job.servers = servers;
  job.rank = job.rank < workers ? job.rank + servers : job.rank - workers;
  for (int rank = 0; rank < job.size; ++rank) {
    job.ranks_in_job.push_back(rank < servers ? rank + workers : rank - servers);
  }
}

}  // namespace

net::Endpoint rendezvous_on_this_host(const net::JobKey& key) {
  const SecretKey name = derive_key(key, "gyre rendezvous on this host");
  return {net::Endpoint::Kind::kUnix, "@gyre-" + hex_of(name).substr(0, 32), 0};
}

LocalKeyServer::LocalKeyServer() {
  SecretKey random;
  fill_with_secure_random(random);
  name_ = "gyre-key-" + hex_of(random).substr(0, 32);
  socket_ = net::listen_on({net::Endpoint::Kind::kUnix, "@" + name_, 0});
}

void LocalKeyServer::hand_out(int size, const SecretKey& key, Deadline deadline) const {
  hand_out_local_key(socket_, size, key, deadline);
}

SecretKey fetch_key_on_this_host(const std::string& name, int rank, Deadline deadline) {
  const net::Endpoint place{net::Endpoint::Kind::kUnix, "@" + name, 0};
  return fetch_local_key({net::parse_endpoint(net::to_string(place))}, rank,
                         Deadline::after(std::chrono::milliseconds(0)), deadline);
}

std::optional<SecretKey> secret_from_environment() {
  constexpr const char* kPurpose = "gyre torch secret";
  if (const auto descriptor = environment_variable(launch_contract::kKeyDescriptor)) {
    const int number = static_cast<int>(
        parse_integer(*descriptor, launch_contract::kKeyDescriptor, 0, std::numeric_limits<int>::max()));
    // A program between `gyre run` and this process may have closed it, or opened something else in its place.
    struct stat status{};
    SecretKey key;
    if (::fstat(number, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == SecretKey::kBytes &&
        ::pread(number, key.data(), key.size(), 0) == static_cast<ssize_t>(key.size())) {
      return derive_key(key, kPurpose);
    }
  }
  const auto file = environment_variable(launch_contract::kKeyFile);
  return file && !file->empty() ? std::optional(key_from_file(*file, kPurpose)) : std::nullopt;
}

void take_link_settings(Job& job) {
  if (const auto encrypt = environment_variable("GYRE_TLS")) job.encrypt = parse_bool(*encrypt, "GYRE_TLS");
  if (const auto names = environment_variable("GYRE_INTERFACES")) {
    for (const std::string& name : parse_interfaces(*names)) job.link_addresses.push_back(address_of_interface(name));
  }
  if (const auto networks = environment_variable("GYRE_ALLOW")) {
    job.allowed = net::parse_networks(*networks, "GYRE_ALLOW");
  }
  if (const auto address = environment_variable("GYRE_BIND")) {
    if (!job.link_addresses.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "GYRE_BIND and GYRE_INTERFACES are both set; one of them says where this rank listens");
    }
    const std::vector<net::Network> networks = net::parse_networks(*address, "GYRE_BIND");
    if (networks.size() != 1) throw Error(ErrorCode::kInvalidArgument, "GYRE_BIND names more than one network");
    job.bind_address = net::own_address_in(networks.front(), "GYRE_BIND");
  }
}

Job job_from_environment(Deadline deadline) {
  const Launch launch = read_launch(environment_variable, ::getuid(), [](const std::vector<std::string>& entries) {
    return launcher_process(::getpid(), entries);
  });
  Job job;
  job.rank = launch.rank;
  job.size = launch.size;
  // A torchrun that `gyre run` started has ranks of its own, and no servers.
  if (const auto servers = environment_variable(launch_contract::kServers); servers && launch.launcher == "gyre") {
    put_servers_first(job, static_cast<int>(parse_integer(*servers, launch_contract::kServers, 0, job.size - 1)));
  }
  job.rendezvous = launch.rendezvous;
  job.launcher = launch.launcher;
  take_link_settings(job);
  if (launch.listener_descriptor >= 0) job.listener = inherited_listener(launch.listener_descriptor);
  if (launch.failure_descriptor >= 0) job.launcher_pipe = LauncherPipe::inherited(launch.failure_descriptor);
  if (launch.ended_descriptor >= 0) job.ended = inherited_ended(launch.ended_descriptor);
  switch (launch.key_source) {
    case Launch::KeySource::kNone: break;
    case Launch::KeySource::kDescriptor: job.key = key_from_descriptor(launch.key_descriptor); break;
    case Launch::KeySource::kFile:
      // Jobs that use the same file have different keys all the same.
      job.key = key_from_file(launch.key_file, "gyre job " + launch.job_id);
      if (!launch.local_name.empty()) job.rendezvous = rendezvous_on_this_host(job.key);
      break;
    case Launch::KeySource::kLocalSocket: agree_on_local_key(launch.local_name, job, deadline); break;
  }
  return job;
}

}  // namespace gyre::group
