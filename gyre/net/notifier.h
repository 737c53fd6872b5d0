#pragma once

#include "gyre/base/file.h"

namespace gyre::net {

/// Wakes a thread that sleeps in poll(2). Thread-safe. (An eventfd.)
class Notifier {
 public:
  Notifier();

  /// Makes fd() readable until clear(). May be called from a signal handler.
  void notify() const;
  void clear() const;
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace gyre::net
