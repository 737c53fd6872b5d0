#pragma once

#include <cstddef>

namespace gyre::app {

/// As many open files as the system lets this process have, within reason; returns how many that are.
std::size_t raise_file_limit();

}  // namespace gyre::app
