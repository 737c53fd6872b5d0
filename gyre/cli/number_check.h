#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace gyre::cli {

/// For an option's check(): "'-1' is not a whole number of 0 or more". CLI11's own PositiveNumber and NonNegativeNumber
/// name the range's other end, the largest double, with its 309 digits.
CLI::Validator whole_number_from(std::int64_t lowest);

}  // namespace gyre::cli
