#include "gyre/launch/internal/job_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

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
  std::array<std::byte, kJobKeyBytes> key;
  fill_with_secure_random(key);
  UniqueFd fd = seal_key(key);
  ::explicit_bzero(key.data(), key.size());
  return fd;
}

/// Abstract: the name lives as long as the socket, and no file can be left behind.
UniqueFd listen_on(const std::string& name, int ranks) {
  constexpr int kLeastBacklog = 512;
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) throw system_error("cannot make the rendezvous socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(fd.get(), std::max(kLeastBacklog, ranks)) != 0) {
    throw system_error(fmt::format("cannot listen on unix:@{}", name), errno);
  }
  return fd;
}

void make_verdict_pipe(JobIdentity& identity) {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw system_error("cannot make a pipe to the ranks", errno);
  identity.verdicts = UniqueFd(ends[0]);
  identity.verdict_fd = UniqueFd(ends[1]);
}

}  // namespace

JobIdentity make_job_identity(int ranks) {
  std::array<std::byte, 16> nonce;
  fill_with_secure_random(nonce);
  std::string name = "gyre-";
  for (const std::byte byte : nonce) name += fmt::format("{:02x}", static_cast<unsigned>(byte));
  JobIdentity identity;
  identity.rendezvous_fd = listen_on(name, ranks);
  identity.rendezvous = "unix:@" + name;
  identity.key_fd = make_key();
  make_verdict_pipe(identity);
  return identity;
}

JobIdentity join_job_identity(const HostPart& part) {
  JobIdentity identity;
  identity.rendezvous = part.rendezvous;
  if (!part.key.empty()) identity.key_fd = seal_key(part.key);
  make_verdict_pipe(identity);
  return identity;
}

}  // namespace gyre::launch
