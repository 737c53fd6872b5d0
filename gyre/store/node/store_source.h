#pragma once

#include <memory>
#include <string>

#include "gyre/store/sources/source.h"

namespace gyre::store::node {

constexpr const char* kStoreScheme = "store://";

/// A store that a daemon on this node serves, as a source: `store://DIR/JOB`. Error(kInvalidArgument).
std::unique_ptr<Source> open_store_source(const std::string& name);

}  // namespace gyre::store::node
