#include "gyre/cli/live_block.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <utility>

#include "gyre/base/parse.h"
#include "gyre/cli/table.h"

namespace gyre::cli {

namespace {

/// Of a line that does not end; then it is written as one.
constexpr std::size_t kLongestUnfinished = std::size_t{64} << 10;
constexpr std::string_view kPlain = "\x1b[0m";
constexpr std::string_view kToEndOfScreen = "\x1b[J";

std::string_view colour_of(Tone tone) {
  switch (tone) {
    case Tone::kDim: return "\x1b[2m";
    case Tone::kGood: return "\x1b[32m";
    case Tone::kBad: return "\x1b[31m";
    case Tone::kBusy: return "\x1b[36m";
    case Tone::kPlain: break;
  }
  return "";
}

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

bool is_in(std::uint32_t code, std::span<const Range> ranges) {
  return std::ranges::any_of(ranges, [&](const Range& range) { return range.first <= code && code <= range.last; });
}

/// Unicode's East Asian Width and its combining marks, as coarsely as terminals need it.
int columns_of_code(std::uint32_t code) {
  static constexpr std::array<Range, 4> kNone = {
      {{0x300, 0x36f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}}};
  static constexpr std::array<Range, 8> kTwo = {{{0x1100, 0x115f},
                                                 {0x2e80, 0xa4cf},
                                                 {0xac00, 0xd7a3},
                                                 {0xf900, 0xfaff},
                                                 {0xfe30, 0xfe6f},
                                                 {0xff00, 0xff60},
                                                 {0x1f300, 0x1faff},
                                                 {0x20000, 0x3fffd}}};
  if (is_in(code, kNone)) return 0;
  return is_in(code, kTwo) ? 2 : 1;
}

/// How many bytes the first character of UTF-8 has.
std::size_t bytes_of_character(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) ++bytes;
  return bytes;
}

std::uint32_t code_of(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return first;
  std::uint32_t code = first & (0xffU >> (character.size() + 1));
  for (const char byte : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(byte) & 0x3fU);
  return code;
}

/// What a terminal would show of a line that has not ended.
std::string visible_end(const std::string& unfinished) {
  const std::size_t last = unfinished.find_last_not_of('\r');
  if (last == std::string::npos) return "";
  const std::size_t before = unfinished.rfind('\r', last);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return unfinished.substr(begin, last + 1 - begin);
}

}  // namespace

LiveOptions live_options_from_environment() {
  LiveOptions options;
  struct stat out{};
  struct stat error{};
  const bool one_terminal = ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1 &&
                            ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &error) == 0 &&
                            out.st_rdev == error.st_rdev;
  const std::string term = environment_variable("TERM").value_or("");
  options.draws = one_terminal && !term.empty() && term != "dumb";
  options.colour = options.draws && environment_variable("NO_COLOR").value_or("").empty();
  return options;
}

int columns_of(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const std::size_t bytes = bytes_of_character(text);
    columns += columns_of_code(code_of(text.substr(0, bytes)));
    text.remove_prefix(bytes);
  }
  return columns;
}

std::string cut_to_columns(std::string_view text, int columns) {
  std::size_t kept = 0;
  while (kept < text.size()) {
    const std::size_t bytes = bytes_of_character(text.substr(kept));
    columns -= columns_of_code(code_of(text.substr(kept, bytes)));
    if (columns < 0) break;
    kept += bytes;
  }
  return std::string(text.substr(0, kept));
}

LiveBlock::~LiveBlock() { clear(); }

TerminalSize LiveBlock::size() const {
  struct winsize size{};
  if (::ioctl(options_.fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

void LiveBlock::put(std::string_view text) const {
  // One write, so that a kill leaves no half of a control sequence.
  while (!text.empty()) {
    const ssize_t count = ::write(options_.fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // A view is worth no failure.
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

/// Moves the cursor to where the block began, and takes it away.
std::string LiveBlock::erased(const TerminalSize& size) {
  if (drawn_columns_.empty()) return "";
  int rows = 0;
  // A terminal that has become narrower may have broken them.
  for (const int columns : drawn_columns_) rows += std::max(1, (columns + size.columns - 1) / size.columns);
  drawn_columns_.clear();
  on_screen_.clear();
  return fmt::format("\r\x1b[{}A{}", rows, kToEndOfScreen);
}

std::string LiveBlock::drawn(const TerminalSize& size) {
  std::vector<BlockLine> lines = lines_;
  for (const auto& [to, unfinished] : unfinished_) {
    if (const std::string end = visible_end(unfinished); !end.empty()) lines.push_back({end});
  }
  const auto most = static_cast<std::size_t>(std::max(1, size.rows - 1));
  if (lines.size() > most) lines.resize(most);
  std::string text;
  for (const BlockLine& line : lines) {
    // One column is left free: some terminals break a line that is full.
    const std::string shown = cut_to_columns(printable(line.text), std::max(1, size.columns - 1));
    drawn_columns_.push_back(columns_of(shown));
    const std::string_view colour = options_.colour ? colour_of(line.tone) : "";
    text += fmt::format("{}{}{}\n", colour, shown, colour.empty() ? "" : kPlain);
  }
  on_screen_ = text;
  return text;
}

void LiveBlock::write(std::FILE* to, std::string_view text) {
  if (!options_.draws) {
    std::fwrite(text.data(), 1, text.size(), to);
    std::fflush(to);
    return;
  }
  std::string& line = unfinished_[to];
  line += text;
  std::size_t end = line.rfind('\n');
  if (end == std::string::npos && line.size() > kLongestUnfinished) {
    line += '\n';
    end = line.size() - 1;
  }
  const TerminalSize now = size();
  std::string staying;
  if (end != std::string::npos) {
    staying = line.substr(0, end + 1);
    line.erase(0, end + 1);
    // The colours of a job are not those of the block.
    if (staying.find('\x1b') != std::string::npos) staying += kPlain;
  }
  const std::string before = erased(now);
  put(before + staying + drawn(now));
}

void LiveBlock::show(std::vector<BlockLine> lines) {
  if (!options_.draws) return;
  lines_ = std::move(lines);
  const TerminalSize now = size();
  const std::string last = on_screen_;
  const std::string before = erased(now);
  const std::string after = drawn(now);
  if (after != last) put(before + after);
}

void LiveBlock::clear() {
  if (!options_.draws) return;
  std::string text = erased(size());
  for (auto& [to, unfinished] : unfinished_) {
    if (!unfinished.empty()) text += unfinished + "\n";
    unfinished.clear();
  }
  lines_.clear();
  put(text);
}

}  // namespace gyre::cli
