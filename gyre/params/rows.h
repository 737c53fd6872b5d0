#pragma once

#include <cstdint>
#include <vector>

namespace gyre::params {

/// Some rows of a table, ascending, each once, and their values one row after the other.
struct Rows {
  std::vector<std::uint64_t> numbers{};
  std::vector<float> values{};

  bool operator==(const Rows&) const = default;
};

/// The state of a tensor's optimizer on the servers.
struct TensorState {
  std::uint64_t steps = 0;
  std::vector<std::vector<float>> slots{};  ///< As UpdateRule's, each of the tensor's size.

  bool operator==(const TensorState&) const = default;
};

}  // namespace gyre::params
