#pragma once

#include <cstdint>

#include "gyre/store/reading/data_files.h"

namespace gyre::store::node {

/// The files of sources, of stores of this node and of this machine, for a loader with such a budget, with the
/// credentials that the environment of this process holds (credentials_from()).
DataFiles data_files_from_environment(std::uint64_t budget_bytes);

}  // namespace gyre::store::node
