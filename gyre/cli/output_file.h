#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace gyre::cli {

/// Writes what a person has named on a command line. A file is replaced as a whole, or not at all, and behind links it
/// is the one that they lead to; into what is no file (a device, a pipe, the /dev/fd/63 of a shell's `>(…)`) the bytes
/// are written, and it stays. gyre::Error names the path.
void write_output(const std::string& path, std::span<const std::byte> bytes);

}  // namespace gyre::cli
