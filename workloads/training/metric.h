#pragma once

#include <string_view>

namespace gyre::training {

/// What is measured of each sample, and reported as the mean over many.
struct Metric {
  std::string_view name;
  bool lowest_is_best = true;
};

}  // namespace gyre::training
