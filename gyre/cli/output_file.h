#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace gyre::cli {

/// Writes an output that a person has named on a command line. A file is replaced as a whole, or not at all; a symbolic
/// link stays, and the file that it leads to is replaced. A device or a pipe (the /dev/fd/63 of a shell's `>(…)`) stays
/// too, and the bytes are written into it. gyre::Error names the path.
void write_output(const std::string& path, std::span<const std::byte> bytes);

}  // namespace gyre::cli
