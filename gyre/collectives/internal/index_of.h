#pragma once

#include <cstddef>

namespace gyre::collectives::internal {

/// Of a rank, or of a place among some, in a container.
constexpr std::size_t index_of(int place) { return static_cast<std::size_t>(place); }

}  // namespace gyre::collectives::internal
