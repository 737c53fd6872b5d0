#include "gyre/jobs/node/internal/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <filesystem>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::jobs::node::internal {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 512;
constexpr std::size_t kShownOfName = 100;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kCorruptData, fmt::format("the archive of code is not usable: {}", what));
}

/// A field of a header, up to its first zero.
std::string_view field(std::string_view header, std::size_t at, std::size_t room) {
  const std::string_view text = header.substr(at, room);
  return text.substr(0, std::min(text.find('\0'), text.size()));
}

std::uint64_t octal(std::string_view header, std::size_t at, std::size_t room) {
  std::string_view text = field(header, at, room);
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (!text.empty() && (failure != std::errc() || end != text.data() + text.size())) refuse("a header has no number");
  return value;
}

void check_sum(std::string_view header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
  }
  if (sum != octal(header, 148, 8)) refuse("the checksum of a header is wrong");
}

bool has_zero(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return c == '\0'; });
}

/// Without "." and slashes at its end.
std::string checked_path(const std::string& text) {
  if (text.empty() || has_zero(text)) refuse("an entry has no name");
  const fs::path given(text);
  if (given.is_absolute() || std::ranges::find(given, "..") != given.end()) {
    refuse(fmt::format("'{}' lies outside of the folder", text));
  }
  for (const fs::path& part : given) {
    if (part.native().size() > NAME_MAX || text.size() >= PATH_MAX) {
      refuse(fmt::format("the name '{}…' is longer than a file's can be", text.substr(0, kShownOfName)));
    }
  }
  std::string plain = given.lexically_normal().string();
  while (plain.ends_with('/')) plain.pop_back();
  return plain;
}

void check_link(const TarEntry& entry) {
  const fs::path target(entry.link);
  const fs::path leads_to = (fs::path(entry.path).parent_path() / target).lexically_normal();
  const bool inside =
      !entry.link.empty() && !has_zero(entry.link) && !target.is_absolute() && *leads_to.begin() != "..";
  if (!inside) refuse(fmt::format("'{}' is a link to '{}', outside of the folder", entry.path, entry.link));
}

std::string name_in(std::string_view header) {
  const std::string_view prefix = field(header, 345, 155);
  const bool has_prefix = header.substr(257, 6) == std::string_view("ustar\0", 6) && !prefix.empty();
  const std::string name(field(header, 0, 100));
  return has_prefix ? fmt::format("{}/{}", prefix, name) : name;
}

}  // namespace

std::span<const std::byte> TarReader::take(std::uint64_t bytes) {
  if (bytes > rest_.size()) refuse("it ends in the middle of an entry");
  const auto taken = rest_.first(static_cast<std::size_t>(bytes));
  const std::uint64_t blocks = (bytes + kBlock - 1) / kBlock * kBlock;
  rest_ = rest_.subspan(static_cast<std::size_t>(std::min<std::uint64_t>(blocks, rest_.size())));
  return taken;
}

/// Lines "LENGTH KEY=VALUE\n".
void TarReader::read_pax(std::span<const std::byte> content, Extended& extended) {
  std::string_view text = as_text(content);
  while (!text.empty()) {
    std::size_t length = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<std::size_t>(end - text.data());
    if (failure != std::errc() || length > text.size() || length < digits + 3 || text[length - 1] != '\n') {
      refuse("an extended header is damaged");
    }
    const std::string_view line = text.substr(digits + 1, length - digits - 2);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) refuse("an extended header is damaged");
    const std::string_view key = line.substr(0, equals);
    if (key == "path") extended.path = std::string(line.substr(equals + 1));
    if (key == "linkpath") extended.link = std::string(line.substr(equals + 1));
    if (key == "size") refuse("an entry is too large");
    text.remove_prefix(length);
  }
}

std::optional<TarEntry> TarReader::next() {
  Extended extended;
  for (;;) {
    if (rest_.empty()) return std::nullopt;
    const std::string_view header = as_text(take(kBlock));
    if (std::ranges::all_of(header, [](char c) { return c == '\0'; })) return std::nullopt;
    check_sum(header);
    TarEntry entry;
    const char type = header[156];
    entry.content = take(octal(header, 124, 12));
    const auto long_text = [&] { return std::string(field(as_text(entry.content), 0, entry.content.size())); };
    if (type == 'x') read_pax(entry.content, extended);
    if (type == 'L') extended.path = long_text();
    if (type == 'K') extended.link = long_text();
    if (type == 'x' || type == 'L' || type == 'K' || type == 'g') continue;
    entry.path = checked_path(extended.path.value_or(name_in(header)));
    entry.link = extended.link.value_or(std::string(field(header, 157, 100)));
    entry.executable = (octal(header, 100, 8) & 0100U) != 0;
    entry.modified_s = static_cast<std::int64_t>(octal(header, 136, 12));
    switch (type) {
      case '0':
      case '\0': entry.kind = TarEntry::Kind::kFile; break;
      case '5': entry.kind = TarEntry::Kind::kFolder; break;
      case '2':
        entry.kind = TarEntry::Kind::kLink;
        check_link(entry);
        break;
      default: refuse(fmt::format("'{}' is neither a file, a folder nor a symbolic link", entry.path));
    }
    return entry;
  }
}

}  // namespace gyre::jobs::node::internal
