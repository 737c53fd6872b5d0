#include "gyre/cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "gyre/base/check.h"

namespace gyre::cli {

namespace {

/// How many bytes the character at the beginning of `text` has; 0 where there is none of UTF-8.
std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t bytes = first < 0x80   ? 1
                            : first < 0xc2 ? 0
                            : first < 0xe0 ? 2
                            : first < 0xf0 ? 3
                            : first < 0xf5 ? 4
                                           : 0;
  if (bytes == 0 || bytes > text.size()) return 0;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  return std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(bytes), continues) ? bytes : 0;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;  // U+0080 to U+009F
}

/// In characters, each of which is taken to be one column wide.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(bytes, 1));
    if (bytes > 0 && !is_control(character)) {
      shown += character;
    } else {
      for (const char byte : character) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    text.remove_prefix(character.size());
  }
  return shown;
}

std::string shown_bytes(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KB", "MB", "GB", "TB"};
  constexpr double kStep = 1'024;
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (amount >= kStep && unit + 1 < kUnits.size()) {
    amount /= kStep;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

void Table::add(std::vector<std::string> cells) {
  const bool fits = cells.size() == headings_.size();
  GYRE_CHECK(fits);
  for (std::string& cell : cells) cell = cell.empty() ? "-" : printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const std::string& heading : headings_) widths.push_back(width_of(heading));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      line += cells[i];
      if (i + 1 < cells.size()) line.append(widths[i] - width_of(cells[i]) + 2, ' ');
    }
    text += line + "\n";
  };
  add_line(headings_);
  for (const auto& row : rows_) add_line(row);
  return text;
}

std::string shown_seconds(std::int64_t seconds) {
  seconds = std::max<std::int64_t>(0, seconds);
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3'600;
  constexpr std::int64_t kDay = 86'400;
  if (seconds >= kDay) return fmt::format("{}d{:02}h", seconds / kDay, seconds % kDay / kHour);
  if (seconds >= kHour) return fmt::format("{}h{:02}m", seconds / kHour, seconds % kHour / kMinute);
  if (seconds >= kMinute) return fmt::format("{}m{:02}s", seconds / kMinute, seconds % kMinute);
  return fmt::format("{}s", seconds);
}

}  // namespace gyre::cli
