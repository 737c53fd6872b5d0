#include "gyre/jobs/spec/duration.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace gyre::jobs::spec {

namespace {

constexpr double kMostSeconds = 1000.0 * 365 * 86400;

/// Reads a text from its front.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool done() const { return rest_.empty(); }
  bool take(char letter) {
    if (rest_.empty() || rest_.front() != letter) return false;
    rest_.remove_prefix(1);
    return true;
  }
  /// Digits, at most nine.
  std::optional<std::int64_t> number() {
    constexpr std::size_t kMostDigits = 9;
    std::int64_t value = 0;
    // Both ends are given. NOLINTBEGIN(bugprone-suspicious-stringview-data-usage)
    const auto [end, failure] =
        std::from_chars(rest_.data(), rest_.data() + std::min(rest_.size(), kMostDigits), value);
    // NOLINTEND(bugprone-suspicious-stringview-data-usage)
    if (failure != std::errc() || value < 0 || rest_.front() == '-') return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  /// After a point or comma: digits, of which only whether one is above 0 matters.
  std::optional<bool> fraction_above_zero() {
    const std::size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    if (digits == 0) return std::nullopt;
    const bool above = rest_.substr(0, digits).find_first_not_of('0') != std::string_view::npos;
    rest_.remove_prefix(digits);
    return above;
  }

 private:
  std::string_view rest_;
};

std::optional<std::chrono::seconds> within_limit(std::int64_t seconds) {
  if (static_cast<double>(seconds) >= kMostSeconds) return std::nullopt;
  return std::chrono::seconds(seconds);
}

/// One unit of ISO 8601, in the order in which they may stand.
struct Unit {
  char letter;
  std::int64_t seconds;
  bool is_time;  ///< Stands after the T.
};
constexpr Unit kUnits[] = {
    {'W', 604800, false}, {'D', 86400, false}, {'H', 3600, true}, {'M', 60, true}, {'S', 1, true}};

/// After the "P".
std::optional<std::chrono::seconds> parse_iso_8601(Scanner scanner) {
  std::int64_t seconds = 0;
  bool in_time = false;
  bool any = false;
  const Unit* next = std::begin(kUnits);
  while (!scanner.done()) {
    if (!in_time && scanner.take('T')) {
      in_time = true;
      any = false;  // The T must be followed by something.
      continue;
    }
    const std::optional<std::int64_t> count = scanner.number();
    if (!count) return std::nullopt;
    std::optional<bool> fraction = false;
    const bool has_fraction = scanner.take('.') || scanner.take(',');
    if (has_fraction) fraction = scanner.fraction_above_zero();
    while (next != std::end(kUnits) && (next->is_time != in_time || !scanner.take(next->letter))) ++next;
    if (next == std::end(kUnits) || !fraction || (has_fraction && next->letter != 'S')) return std::nullopt;
    seconds += *count * next->seconds + (*fraction ? 1 : 0);
    ++next;
    any = true;
  }
  return any ? within_limit(seconds) : std::nullopt;
}

/// [days.]hours:minutes[:seconds[.fraction]]
std::optional<std::chrono::seconds> parse_time_span(Scanner scanner) {
  std::optional<std::int64_t> hours = scanner.number();
  std::int64_t days = 0;
  if (hours && scanner.take('.')) {
    days = *hours;
    hours = scanner.number();
  }
  if (!hours || *hours > 23 || !scanner.take(':')) return std::nullopt;
  const std::optional<std::int64_t> minutes = scanner.number();
  if (!minutes || *minutes > 59) return std::nullopt;
  std::int64_t seconds = 0;
  if (scanner.take(':')) {
    const std::optional<std::int64_t> whole = scanner.number();
    if (!whole || *whole > 59) return std::nullopt;
    const std::optional<bool> fraction = scanner.take('.') ? scanner.fraction_above_zero() : false;
    if (!fraction) return std::nullopt;
    seconds = *whole + (*fraction ? 1 : 0);
  }
  if (!scanner.done()) return std::nullopt;
  return within_limit(days * 86400 + *hours * 3600 + *minutes * 60 + seconds);
}

}  // namespace

std::optional<std::chrono::seconds> parse_duration(std::string_view text) {
  Scanner scanner(text);
  return scanner.take('P') ? parse_iso_8601(scanner) : parse_time_span(scanner);
}

std::string iso_8601_duration(std::chrono::seconds duration) {
  const std::int64_t total = duration.count();
  std::string time;
  if (const std::int64_t hours = total / 3600 % 24; hours != 0) time += fmt::format("{}H", hours);
  if (const std::int64_t minutes = total / 60 % 60; minutes != 0) time += fmt::format("{}M", minutes);
  if (const std::int64_t seconds = total % 60; seconds != 0) time += fmt::format("{}S", seconds);
  const std::int64_t days = total / 86400;
  const std::string date = days != 0 ? fmt::format("{}D", days) : "";
  if (time.empty()) return date.empty() ? "PT0S" : "P" + date;
  return "P" + date + "T" + time;
}

}  // namespace gyre::jobs::spec
