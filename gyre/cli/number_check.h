#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace gyre::cli {

/// For an option's check(): "'-1' is not a whole number of 0 or more". CLI11's own PositiveNumber and NonNegativeNumber
/// name the range's other end, the largest double, with its 309 digits.
CLI::Validator whole_number_from(std::int64_t lowest);

/// Likewise for a finite number of 0 or more, or above 0, and for one from 0 to 1: what is wrong, or nothing. CLI11's
/// own checks let NaN pass.
std::string check_rate(const std::string& text, bool may_be_zero);
std::string check_share(const std::string& text);
/// For a number without a sign: CLI11 makes 2^64 - 1 of -1. What else is no number, CLI11 says itself.
std::string check_unsigned(const std::string& text);

}  // namespace gyre::cli
