#pragma once

#include <cmath>
#include <nlohmann/json.hpp>

namespace gyre::metrics {

/// A value for JSON: "NaN", "Infinity" and "-Infinity" for what is not a number there.
inline nlohmann::json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

}  // namespace gyre::metrics
