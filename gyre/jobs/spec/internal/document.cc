#include "gyre/jobs/spec/internal/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gyre/jobs/spec/internal/document_builder.h"

namespace gyre::jobs::spec {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kLongestStep = 80;

bool is_continuation(char byte) { return (static_cast<std::uint8_t>(byte) & 0xC0) == 0x80; }

/// How many bytes the UTF-8 character at the front of `text` has; 0 where there is none.
std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<std::uint8_t>(text.front());
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xC2 && first < 0xE0   ? 2
                            : (first & 0xF0) == 0xE0        ? 3
                            : first >= 0xF0 && first < 0xF5 ? 4
                                                            : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  if (!std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(bytes), is_continuation)) return 0;
  const auto second = static_cast<std::uint8_t>(text[1]);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool no_character = (first == 0xED && second >= 0xA0) || (first == 0xF4 && second >= 0x90);
  return overlong || no_character ? 0 : bytes;
}

void check_encoding(std::string_view text) {
  int line = 1;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) throw DocumentError{line, "the file is not UTF-8 text"};
    if (text.front() == '\0') throw DocumentError{line, "the file is not text: it has a NUL character"};
    if (text.front() == '\n') ++line;
    text.remove_prefix(bytes);
  }
}

bool looks_like_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
}

}  // namespace

std::string_view kind_name(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::kNull: return "null";
    case Value::Kind::kBoolean: return "true or false";
    case Value::Kind::kNumber: return "a number";
    case Value::Kind::kText: return "text";
    case Value::Kind::kList: return "a list";
    case Value::Kind::kObject: return "an object";
  }
  return "unknown";
}

Value parse_document(std::string_view text, Format format, std::vector<Problem>& problems) {
  if (text.size() > kMostFileBytes)
    throw DocumentError{0, fmt::format("the file has {} bytes; {} are the limit", text.size(), kMostFileBytes)};
  check_encoding(text);
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) throw DocumentError{0, "the file is empty"};
  DocumentBuilder builder(problems);
  if (format == Format::kJson || (format == Format::kDetected && looks_like_json(text))) {
    read_json(text, builder);
  } else {
    read_yaml(text, builder);
  }
  return builder.take_root();
}

std::string pointer_step(std::string_view name) {
  std::string step;
  const bool cut = name.size() > kLongestStep;
  if (cut) {
    std::size_t end = kLongestStep;
    while (end > 0 && is_continuation(name[end])) --end;
    name = name.substr(0, end);
  }
  for (const char letter : name) {
    const bool control = static_cast<std::uint8_t>(letter) < 0x20 || letter == 0x7F;
    step += letter == '~' ? "~0" : letter == '/' ? "~1" : control ? "?" : std::string(1, letter);
  }
  return cut ? step + "…" : step;
}

}  // namespace gyre::jobs::spec
