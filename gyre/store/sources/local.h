#pragma once

#include <filesystem>
#include <memory>

#include "gyre/store/sources/source.h"

namespace gyre::store {

/// A folder of this machine (a mounted share is one too), or one file. Links are followed. An object's version is its
/// size and the time of its last change.
std::unique_ptr<Source> open_local_source(const std::filesystem::path& path);

}  // namespace gyre::store
