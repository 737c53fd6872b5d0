#pragma once

#include <csignal>

#include "gyre/base/file.h"

namespace gyre::app {

/// While it lives, Ctrl-C, SIGTERM and SIGHUP end nothing; they arrive here. Threads that start meanwhile inherit that.
class EndSignals {
 public:
  EndSignals();
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  /// Waits for a signal; false after `longest_ms` without one. Negative: without a limit.
  bool wait(int longest_ms);
  /// Readable when wait() would not wait.
  int fd() const { return fd_.get(); }
  /// The last one that wait() waited for; 0: none.
  int received() const { return received_; }

 private:
  sigset_t before_{};
  UniqueFd fd_;
  int received_ = 0;
};

}  // namespace gyre::app
