#pragma once

namespace gyre {

/// How many cores this process may use (its affinity mask, and the limit of its cgroups, rounded up); at least 1.
int usable_cores();

}  // namespace gyre
