#include "gyre/cli/fields.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "gyre/cli/live_block.h"
#include "gyre/cli/table.h"

namespace gyre::cli {

namespace {

constexpr int kBetween = 2;
/// With less room than this next to the names, values stand below them.
constexpr int kNarrowest = 24;

std::vector<std::string> lines_in(std::string_view text) {
  std::vector<std::string> lines;
  for (;;) {
    const std::size_t end = text.find('\n');
    lines.push_back(printable(text.substr(0, end)));
    if (end == std::string_view::npos) return lines;
    text.remove_prefix(end + 1);
  }
}

/// Between words; one that is longer than a line stays whole, to be copied, and the terminal breaks it.
std::vector<std::string> wrapped(const std::string& line, int width) {
  std::vector<std::string> lines;
  std::string_view rest = line;
  while (columns_of(rest) > width) {
    std::size_t end = rest.rfind(' ', cut_to_columns(rest, width + 1).size() - 1);
    if (end == std::string_view::npos || end == 0) end = rest.find(' ', 1);
    if (end == std::string_view::npos) break;
    lines.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  lines.emplace_back(rest);
  return lines;
}

}  // namespace

std::string fields_text(const std::vector<std::pair<std::string, std::string>>& fields, int columns) {
  int names = 0;
  for (const auto& [name, value] : fields) {
    if (!value.empty()) names = std::max(names, static_cast<int>(name.size()));
  }
  const bool below = columns > 0 && columns - names - kBetween < kNarrowest;
  const int indent = below ? kBetween : names + kBetween;
  std::string text;
  for (const auto& [name, value] : fields) {
    if (value.empty()) continue;
    text += below ? name + "\n" : fmt::format("{:{}}", name, indent);
    bool is_first = !below;
    for (const std::string& line : lines_in(value)) {
      for (const std::string& part : columns > 0 ? wrapped(line, columns - indent) : std::vector<std::string>{line}) {
        text += std::string(is_first ? 0 : static_cast<std::size_t>(indent), ' ') + part + "\n";
        is_first = false;
      }
    }
  }
  return text;
}

int terminal_columns(int fd) {
  winsize size{};
  return ::isatty(fd) != 0 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace gyre::cli
