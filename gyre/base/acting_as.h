#pragma once

#include "gyre/base/process.h"

namespace gyre {

/// While it lives, this thread finds, opens, makes and removes files with the rights of `user` and no others; other
/// threads keep theirs, but a thread or process that it starts meanwhile begins with the same. What it makes belongs to
/// `user`. Needs to be made by root; of another user it has no effect, and neither has acting as ourselves. Descriptors
/// that are open already stay what they are. To be destroyed by the thread that made it. Error(kIo) when the system
/// does not let it.
///
/// setfsuid(2): the kernel takes root's rights over files from the thread as long as its file-system user is not root.
class ActingAs {
 public:
  explicit ActingAs(const UserId& user);
  ~ActingAs();
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;

 private:
  bool changed_ = false;
  UserId before_;
};

}  // namespace gyre
