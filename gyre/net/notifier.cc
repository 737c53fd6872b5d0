#include "gyre/net/notifier.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "gyre/base/error.h"

namespace gyre::net {

Notifier::Notifier() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) throw system_error("eventfd", errno);
}

void Notifier::notify() const {
  const int saved_errno = errno;  // For callers that are signal handlers.
  const std::uint64_t one = 1;
  // EAGAIN means that the counter is full: it is readable, which is all we want.
  while (::write(fd_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  errno = saved_errno;
}

void Notifier::clear() const {
  std::uint64_t count = 0;
  while (::read(fd_.get(), &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

}  // namespace gyre::net
