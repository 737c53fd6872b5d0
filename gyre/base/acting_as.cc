#include "gyre/base/acting_as.h"

#include <fmt/format.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/base/reach.h"

namespace gyre {

namespace {

/// Of this thread alone: glibc's setgroups() would change all of them. setfsuid(2) reports no error, so that a second
/// call has to ask.
bool become(const UserId& user) {
  if (::syscall(SYS_setgroups, user.groups.size(), user.groups.data()) != 0) return false;
  ::setfsgid(user.group);
  ::setfsuid(user.user);
  return static_cast<gid_t>(::setfsgid(user.group)) == user.group &&
         static_cast<uid_t>(::setfsuid(user.user)) == user.user;
}

}  // namespace

ActingAs::ActingAs(const UserId& user) {
  if (::geteuid() != 0 || user.user == 0) return;
  before_ = own_user();
  changed_ = true;
  if (become(user)) return;
  const int failure = errno;
  GYRE_CHECK(become(before_));
  throw system_error(fmt::format("cannot act as user {}", user.user), failure);
}

ActingAs::~ActingAs() {
  if (changed_) GYRE_CHECK(become(before_));
}

}  // namespace gyre
