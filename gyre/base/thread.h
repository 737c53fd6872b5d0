#pragma once

#include <functional>
#include <string_view>
#include <thread>

namespace gyre {

/// A thread that runs `body` and gets no signals but those of its own faults: the program's handlers run on the
/// program's threads. Error(kResourceExhausted) says for what (`purpose`) the system had none to give. All threads of
/// ours are started here, and all programs by Process::spawn, which does not hand the blocked signals on.
std::thread start_thread(std::string_view purpose, std::function<void()> body);

}  // namespace gyre
