#pragma once

#include <sys/types.h>

#include <cstdint>

namespace gyre::launch {

enum class Asks : std::uint8_t {
  kNo,
  kYes,
  kUnknown,  ///< The kernel does not say.
};

/// Whether `process`, one that it has started, or a thread of them is waiting in read() for its stdin at this moment.
Asks asks_for_input(pid_t process);

}  // namespace gyre::launch
