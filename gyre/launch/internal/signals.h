#pragma once

#include <csignal>
#include <optional>

#include "gyre/base/file.h"

namespace gyre::launch {

/// While it lives, the signals that end or suspend a job arrive through a descriptor, and a closed pipe, or
/// a file that may not grow (`ulimit -f`), is an error of write(2). Puts everything back when destroyed. Signals that
/// were ignored (nohup, a shell's background job) stay so. For single-threaded processes.
class SignalSource {
 public:
  SignalSource();
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  /// Readable when next() has something.
  int fd() const { return fd_.get(); }
  /// SIGINT, SIGTERM, SIGHUP, SIGQUIT or SIGTSTP, in the order of arrival as far as the system keeps it.
  std::optional<int> next();

 private:
  sigset_t mask_before_;
  struct sigaction pipe_before_;
  struct sigaction file_size_before_;
  struct sigaction child_before_;
  UniqueFd fd_;
};

}  // namespace gyre::launch
