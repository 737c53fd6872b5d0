#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>

namespace gyre {

/// A thread that runs `body` and gets no signals but those of its own faults: the program's handlers run on the
/// program's threads. Error(kResourceExhausted) says for what (`purpose`) the system had none to give. All threads of
/// ours are started here, and all programs by Process::spawn, which does not hand the blocked signals on.
std::thread start_thread(std::string_view purpose, std::function<void()> body);

/// A thread of this process, by both of its names.
struct ThreadIdentity {
  std::thread::id id{};
  pid_t number = 0;  ///< The kernel's; 0: not known.

  static ThreadIdentity current();
};

/// Of the calling thread; unlike its identity, never that of a thread that has ended. Not 0.
std::uint64_t thread_serial();

/// Whether the thread of this process with this number is one of Gyre's own, which start_thread() has started: it runs
/// only our code, and the program's only on behalf of another thread. True from before the kernel shows it until the
/// kernel shows it no more. Thread-safe.
bool is_own_thread(pid_t thread);

}  // namespace gyre
