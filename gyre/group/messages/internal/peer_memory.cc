#include "gyre/group/messages/internal/peer_memory.h"

#include <poll.h>
#include <sys/uio.h>

#include <cerrno>

#include "gyre/base/process.h"

namespace gyre::group::internal {

PeerMemory::PeerMemory(const Member& self, const Member& peer)
    : process_(self.process_namespace != 0 && self.process_namespace == peer.process_namespace ? peer.process : 0),
      pidfd_(process_ > 0 ? open_pidfd(process_) : UniqueFd()) {}

bool PeerMemory::is_alive() const {
  pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  return pidfd_ && ::poll(&ended, 1, 0) == 0;
}

bool PeerMemory::readable(const Desk& desk) {
  if (!readable_) {
    std::uint64_t value = 0;
    const std::uint64_t address = desk.probe_address.load(std::memory_order_relaxed);
    readable_ = process_ > 0 && read(std::as_writable_bytes(std::span(&value, 1)), address) &&
                value == desk.probe_value.load(std::memory_order_relaxed);
  }
  return *readable_;
}

bool PeerMemory::read(std::span<std::byte> into, std::uint64_t address) const {
  while (!into.empty()) {
    const iovec here{into.data(), into.size()};
    const iovec there{reinterpret_cast<void*>(address), into.size()};
    const ssize_t count = ::process_vm_readv(process_, &here, 1, &there, 1, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    into = into.subspan(static_cast<std::size_t>(count));
    address += static_cast<std::uint64_t>(count);
  }
  return is_alive();  // Otherwise another process may have been read, which got the number.
}

}  // namespace gyre::group::internal
