#include "gyre/jobs/spec/internal/document.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "gyre/jobs/spec/internal/document_builder.h"
#include "gyre/jobs/spec/internal/utf8.h"

namespace gyre::jobs::spec {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kLongestStep = 80;

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
