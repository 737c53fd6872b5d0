#include "gyre/jobs/scheduler/internal/words.h"

#include <fmt/format.h>

#include <array>

namespace gyre::jobs::scheduler {
namespace {

struct Unit {
  std::int64_t milliseconds;
  std::string_view one;
  std::string_view many;
};

constexpr std::array kUnits = {Unit{86'400'000, " day", " days"}, Unit{3'600'000, " h", " h"},
                               Unit{60'000, " min", " min"}, Unit{1'000, " s", " s"}, Unit{1, " ms", " ms"}};

}  // namespace

std::string counted(int count, std::string_view singular, std::string_view plural) {
  if (count == 1) return fmt::format("1 {}", singular);
  return plural.empty() ? fmt::format("{} {}s", count, singular) : fmt::format("{} {}", count, plural);
}

std::string duration_text(Time duration) {
  std::int64_t left = duration.count();
  std::string text;
  int units = 0;
  for (const Unit& unit : kUnits) {
    const std::int64_t count = left / unit.milliseconds;
    left %= unit.milliseconds;
    if (units > 0) ++units;
    if (count == 0) {
      if (units == 2) break;
      continue;
    }
    if (units == 0) units = 1;
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", count, count == 1 ? unit.one : unit.many);
    if (units == 2) break;
  }
  return text.empty() ? "0 s" : text;
}

}  // namespace gyre::jobs::scheduler
