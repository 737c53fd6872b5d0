#pragma once

namespace gyre {

/// How many cores this process may use (its affinity mask); at least 1.
int usable_cores();

}  // namespace gyre
