#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre {

/// A whole decimal number within [low, high]. Error(kInvalidArgument): "GYRE_RANK is 'x'; a number from 0 to 7 is
/// needed".
std::int64_t parse_integer(std::string_view text, std::string_view what, std::int64_t low, std::int64_t high);

/// "64MB", "256 KB", "1048576": powers of 1024; suffix in any case, B optional.
std::uint64_t parse_bytes(std::string_view text, std::string_view what);

/// "1", "true", "on", "yes" and their opposites.
bool parse_bool(std::string_view text, std::string_view what);

std::vector<std::string> split(std::string_view text, char separator);

/// getenv for the edges (functions named *_from_environment); an empty variable counts as unset.
std::optional<std::string> environment_variable(const char* name);

}  // namespace gyre
