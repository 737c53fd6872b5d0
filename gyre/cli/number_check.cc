#include "gyre/cli/number_check.h"

#include <fmt/format.h>

#include <cmath>

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

std::string check_rate(const std::string& text, bool may_be_zero) {
  double rate = 0;
  const bool number = CLI::detail::lexical_cast(text, rate) && std::isfinite(rate);
  if (number && (rate > 0 || (may_be_zero && rate == 0))) return {};
  return fmt::format("'{}' is not a number {}", text, may_be_zero ? "of 0 or more" : "above 0");
}

std::string check_share(const std::string& text) {
  double share = 0;
  if (CLI::detail::lexical_cast(text, share) && share >= 0 && share <= 1) return {};
  return fmt::format("'{}' is not a number from 0 to 1", text);
}

std::string check_unsigned(const std::string& text) {
  if (!text.starts_with('-')) return {};
  return fmt::format("'{}' is not a whole number of 0 or more", text);
}

}  // namespace gyre::cli
