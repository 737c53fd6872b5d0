#include "gyre/launch/internal/job_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/net/socket.h"

namespace gyre::launch {

namespace {

UniqueFd seal_key(std::span<const std::byte> key) {
  UniqueFd fd(::memfd_create("gyre-key", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw system_error("cannot make the job's key", errno);
  write_all(fd.get(), key, "cannot write the job's key");
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) throw system_error("cannot seal the job's key", errno);
  return fd;
}

UniqueFd make_key() {
  SecretKey key;
  fill_with_secure_random(key);
  return seal_key(key);
}

void make_failure_pipe(JobIdentity& identity) {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw system_error("cannot make a pipe to the ranks", errno);
  identity.failures = UniqueFd(ends[0]);
  identity.failure_fd = UniqueFd(ends[1]);
}

}  // namespace

JobIdentity make_job_identity(int ranks) {
  std::array<std::byte, 16> nonce;
  fill_with_secure_random(nonce);
  std::string name = "gyre-";
  for (const std::byte byte : nonce) name += fmt::format("{:02x}", static_cast<unsigned>(byte));
  JobIdentity identity;
  constexpr int kLeastBacklog = 512;
  // Abstract: the name lives as long as the socket, and no file can be left behind.
  const net::Endpoint rendezvous{net::Endpoint::Kind::kUnix, "@" + name, 0};
  identity.rendezvous_fd = net::listen_on(rendezvous, std::max(kLeastBacklog, ranks));
  ::fcntl(identity.rendezvous_fd.get(), F_SETFL, 0);  // A program must find an ordinary socket, whose accept() waits.
  identity.rendezvous = net::to_string(rendezvous);
  identity.key_fd = make_key();
  make_failure_pipe(identity);
  return identity;
}

JobIdentity join_job_identity(const HostPart& part) {
  JobIdentity identity;
  identity.rendezvous = part.rendezvous;
  if (part.key) identity.key_fd = seal_key(*part.key);
  make_failure_pipe(identity);
  return identity;
}

}  // namespace gyre::launch
