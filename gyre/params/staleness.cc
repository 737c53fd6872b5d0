#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "gyre/params/server.h"

namespace gyre::params {

std::string describe_staleness(const std::map<std::uint64_t, std::uint64_t>& staleness) {
  constexpr std::uint64_t kMostLines = 12;
  constexpr std::uint64_t kLongestBar = 40;
  if (staleness.empty()) return {};
  const std::uint64_t highest = staleness.rbegin()->first;
  const std::uint64_t width = highest / kMostLines + 1;  // Of a line's range.
  std::vector<std::uint64_t> counts(static_cast<std::size_t>(highest / width) + 1);
  std::uint64_t total = 0;
  double sum = 0;
  for (const auto& [value, count] : staleness) {
    counts[static_cast<std::size_t>(value / width)] += count;
    total += count;
    sum += static_cast<double>(value) * static_cast<double>(count);
  }
  const std::uint64_t most = *std::ranges::max_element(counts);
  std::string text = fmt::format("staleness of {} updates: {:.2f} on average, at most {}\n", total,
                                 sum / static_cast<double>(total), highest);
  for (std::size_t line = 0; line < counts.size(); ++line) {
    const std::uint64_t first = line * width;
    const std::string range = width == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + width - 1);
    const std::string bar(static_cast<std::size_t>(counts[line] * kLongestBar / most), '#');
    text += fmt::format("  {:>9}  {:>10}{}{}\n", range, counts[line], bar.empty() ? "" : "  ", bar);
  }
  return text;
}

}  // namespace gyre::params
