#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gyre::metrics {

constexpr std::size_t kLongestName = 200;
constexpr std::size_t kMostSeries = 10'000;  ///< Names in a file.
/// Names that begin so are Gyre's own: what the engine counts, and what the launcher sees.
constexpr std::string_view kReservedPrefix = "gyre/";

/// One value of one series, logged by one rank.
struct Sample {
  std::string_view name;
  int rank = 0;
  std::int64_t step = 0;
  std::int64_t time_us = 0;  ///< Microseconds since 1970, by the clock of the rank's host.
  double value = 0;          ///< Any; NaN and the infinities too.
};

/// Whether it can be the name of a series: 1 … kLongestName bytes of UTF-8 without control characters.
bool is_name(std::string_view text);

/// Error(kInvalidArgument) if a program cannot log under `name`: it is no name, or a reserved one.
void check_users_name(std::string_view name);

}  // namespace gyre::metrics
