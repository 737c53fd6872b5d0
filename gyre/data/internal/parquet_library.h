#pragma once

#include <string>

#include "gyre/data/parquet/plugin.h"

namespace gyre::data::internal {

/// Loads libgyre_parquet.so, once; it stays. `pyarrow_folder`: where the package pyarrow stands; empty: where the build
/// or the wheel has it. Thread-safe.
/// Error(kUnsupported) says what to install.
const parquet::Interface& parquet_library(const std::string& pyarrow_folder);

}  // namespace gyre::data::internal
