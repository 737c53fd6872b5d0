#include "gyre/cli/number_check.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <system_error>

namespace gyre::cli {

CLI::Validator whole_number_from(std::int64_t lowest) {
  const auto check = [lowest](std::string& text) {
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && stop == end && number >= lowest) return std::string();
    return fmt::format("'{}' is not a whole number of {} or more", text, lowest);
  };
  return {check, "", ""};
}

}  // namespace gyre::cli
