#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gyre/jobs/containers/container_runtime.h"

namespace gyre::jobs::containers {

/// Where containers have our program, and the libraries that it uses in place of the image's.
inline constexpr const char* kProgramInContainer = "/.gyre/gyre-node";
inline constexpr const char* kLibrariesInContainer = "/.gyre/lib";
inline constexpr const char* kLoaderInContainer = "/.gyre/lib/ld.so";

/// The loader of an image's programs reads the names of libraries there, whatever it loads.
inline constexpr const char* kPreloadList = "/etc/ld.so.preload";
/// How the names of an image's variables begin where they must have no effect yet.
inline constexpr const char* kVariableOfImage = "image.";

/// What makes `program`, which was linked for kLoaderInContainer, run in a container of whatever image: itself, this
/// machine's loader, and the libraries that this loader finds for it. Error(kUnsupported) where the program is missing.
std::vector<BindMount> program_mounts(const std::filesystem::path& program);

/// The libraries in what a loader lists: "\tlibc.so.6 => /lib/libc.so.6 (0x…)". Pure.
std::vector<std::filesystem::path> libraries_in(const std::string& listing);

}  // namespace gyre::jobs::containers
