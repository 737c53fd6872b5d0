#pragma once

#include <functional>
#include <string_view>
#include <thread>

namespace gyre {

/// A thread that runs `body`. Error(kResourceExhausted) says for what (`purpose`) the system had none to give.
std::thread start_thread(std::string_view purpose, std::function<void()> body);

}  // namespace gyre
