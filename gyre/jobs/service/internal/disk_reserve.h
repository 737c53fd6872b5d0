#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gyre::jobs::service {

/// ServiceError(kNoRoom, "DiskReserve") where the disk of a service's folder would not keep `reserve` bytes free after
/// so many more. `refused`, as in "no archive of code of 7 bytes", and `remedy`, for the user. A reserve of 0 is none;
/// nor is there one where the disk does not say what it has.
void check_reserve(const std::filesystem::path& folder, std::uint64_t bytes, std::uint64_t reserve,
                   const std::string& refused, const std::string& remedy);

}  // namespace gyre::jobs::service
