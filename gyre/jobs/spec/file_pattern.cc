#include "gyre/jobs/spec/file_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "gyre/base/error.h"
#include "gyre/cli/table.h"

namespace gyre::jobs::spec {

namespace {

constexpr std::string_view kAnyFolders = "**";

/// A character of UTF-8; a byte that is none stands for itself.
struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 1;
};

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::uint32_t first = byte(0);
  const std::size_t length = first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 1;
  constexpr std::uint32_t kNoUtf8 = 0x110000;  // Above all characters.
  if (length == 1) return {first < 0x80 ? first : kNoUtf8 + first, 1};
  if (at + length > text.size()) return {kNoUtf8 + first, 1};
  std::uint32_t code = first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {kNoUtf8 + first, 1};
    code = (code << 6U) | (byte(i) & 0x3fU);
  }
  return {code, length};
}

/// What stands at one place of a pattern, and whether it fits a character. No bytes: nothing does.
struct Piece {
  std::size_t bytes = 0;
  bool fits = false;
};

/// The character at `at`, or the one behind a backslash there.
Character literal_at(std::string_view pattern, std::size_t at) {
  if (pattern[at] != '\\' || at + 1 == pattern.size()) return character_at(pattern, at);
  const Character escaped = character_at(pattern, at + 1);
  return {escaped.code, escaped.bytes + 1};
}

/// "[a-z]"; a bracket that is never closed is a character like others.
Piece set_at(std::string_view pattern, std::size_t begin, std::uint32_t code) {
  std::size_t at = begin + 1;
  const bool inverted = at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^');
  if (inverted) ++at;
  bool within = false;
  for (bool first = true; at < pattern.size(); first = false) {
    if (pattern[at] == ']' && !first) return {at + 1 - begin, within != inverted};
    const Character low = literal_at(pattern, at);
    at += low.bytes;
    std::uint32_t high = low.code;
    if (at + 1 < pattern.size() && pattern[at] == '-' && pattern[at + 1] != ']') {
      const Character last = literal_at(pattern, at + 1);
      high = last.code;
      at += 1 + last.bytes;
    }
    within = within || (low.code <= code && code <= high);
  }
  return {1, code == '['};
}

Piece piece_at(std::string_view pattern, std::size_t at, std::uint32_t code) {
  if (at >= pattern.size()) return {};
  if (pattern[at] == '?') return {1, true};
  if (pattern[at] == '[') return set_at(pattern, at, code);
  const Character literal = literal_at(pattern, at);
  return {literal.bytes, literal.code == code};
}

/// A name, or a pattern of one. After a mismatch only the last star takes one character more: no path is tried twice.
bool name_fits(std::string_view pattern, std::string_view name) {
  std::size_t at = 0;
  std::size_t in_name = 0;
  std::size_t star = std::string_view::npos;
  std::size_t behind_star = 0;  // Where in the name what follows the star is tried.
  while (in_name < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      behind_star = in_name;
      continue;
    }
    const Character character = character_at(name, in_name);
    const Piece piece = piece_at(pattern, at, character.code);
    if (piece.fits) {
      at += piece.bytes;
      in_name += character.bytes;
      continue;
    }
    if (star == std::string_view::npos) return false;
    behind_star += character_at(name, behind_star).bytes;
    in_name = behind_star;
    at = star + 1;
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

/// As name_fits(), with segments in the place of characters and "**" in that of the star.
bool path_fits(std::span<const std::string> pattern, std::span<const std::string_view> path) {
  std::size_t at = 0;
  std::size_t in_path = 0;
  std::size_t star = std::string_view::npos;
  std::size_t behind_star = 0;
  while (in_path < path.size()) {
    if (at < pattern.size() && pattern[at] == kAnyFolders) {
      star = at++;
      behind_star = in_path;
    } else if (at < pattern.size() && name_fits(pattern[at], path[in_path])) {
      ++at;
      ++in_path;
    } else if (star != std::string_view::npos) {
      in_path = ++behind_star;
      at = star + 1;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == kAnyFolders) ++at;
  return at == pattern.size();
}

/// Without empty ones.
std::vector<std::string_view> segments_of(std::string_view path) {
  std::vector<std::string_view> segments;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end > 0) segments.push_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return segments;
}

std::string problem_of(std::string_view text) {
  if (text.empty()) return "names nothing";
  if (text.size() > FilePattern::kLongest) return fmt::format("has more than {} bytes", FilePattern::kLongest);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::ranges::any_of(text, is_control)) return "has control characters";
  if (text.front() == '/') return "is absolute; give a path relative to the working folder";
  if (text.front() == '!') return R"(begins with '!', which excludes nothing here; write \! for a name that does)";
  const auto segments = segments_of(text);
  if (std::ranges::find(segments, "..") != segments.end()) {
    return "contains '..'; only files below the working folder can be kept";
  }
  return "";
}

}  // namespace

std::string FilePattern::refusal_of(std::string_view text) {
  constexpr std::size_t kMostShown = 80;
  const std::string problem = problem_of(text);
  if (problem.empty()) return "";
  const bool whole = text.size() <= kMostShown;
  return fmt::format("'{}{}' {}", cli::printable(text.substr(0, kMostShown)), whole ? "" : "…", problem);
}

FilePattern::FilePattern(const std::string& text) : text_(text) {
  if (const std::string refusal = refusal_of(text); !refusal.empty()) {
    throw Error(ErrorCode::kInvalidArgument, refusal);
  }
  const auto segments = segments_of(text);
  folders_only_ = text.ends_with('/');
  anchored_ = segments.size() > 1;  // "./x" too.
  for (const std::string_view segment : segments) {
    if (segment != ".") segments_.emplace_back(segment);
  }
  // All that is in a folder, and not a file of its name.
  if (anchored_ && !segments_.empty() && segments_.back() == kAnyFolders) segments_.emplace_back("*");
}

bool FilePattern::matches(std::string_view path) const {
  const std::vector<std::string_view> segments = segments_of(path);
  if (segments_.empty()) return true;
  for (std::size_t count = 1; count <= segments.size(); ++count) {
    if (count == segments.size() && folders_only_) return false;
    const bool fits = anchored_ ? path_fits(segments_, std::span(segments).first(count))
                                : name_fits(segments_.front(), segments[count - 1]);
    if (fits) return true;
  }
  return false;
}

}  // namespace gyre::jobs::spec
