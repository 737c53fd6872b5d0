#pragma once

#include <string_view>

#include "gyre/base/file.h"

namespace gyre {

/// The two ends of a pipe(7).
struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

/// Reads and writes wait, and no program that is started inherits it. `what`, as in "a pipe for the page", is for the
/// Error where no descriptors are left.
Pipe make_pipe(std::string_view what = "a pipe");

}  // namespace gyre
