#pragma once

#include <cstdint>
#include <string>

namespace gyre {

/// Microseconds since the machine has started, sleep included: CLOCK_BOOTTIME, which nobody sets.
std::int64_t boot_clock_us();
/// Of this boot of the machine; times of boot_clock_us() compare within one boot only. Error(kIo).
std::string boot_id();

}  // namespace gyre
