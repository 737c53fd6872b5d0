#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "gyre/base/file.h"

namespace gyre::net::http::internal {

/// Error(kIo).
struct stat status_of(const UniqueFd& file);

/// What the file has at `offset`, at most `most` bytes; empty at its end. Error(kIo).
std::string read_at(const UniqueFd& file, std::uint64_t offset, std::size_t most);

}  // namespace gyre::net::http::internal
