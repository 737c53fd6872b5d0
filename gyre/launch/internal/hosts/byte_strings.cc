#include "gyre/launch/internal/hosts/byte_strings.h"

#include <string>

#include "gyre/base/error.h"

namespace gyre::launch {

namespace {

using Json = nlohmann::json;

std::string characters_of(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    if (value < 0x80) {
      text += byte;
    } else {
      text += static_cast<char>(0xC0U | (value >> 6U));
      text += static_cast<char>(0x80U | (value & 0x3FU));
    }
  }
  return text;
}

/// `text` is UTF-8, as everything that a JSON parser returns.
std::string bytes_of(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto value = static_cast<unsigned char>(text[i]);
    if (value < 0x80) {
      bytes += text[i];
    } else if (value <= 0xC3 && i + 1 < text.size()) {
      bytes += static_cast<char>(((value & 0x03U) << 6U) | (static_cast<unsigned char>(text[++i]) & 0x3FU));
    } else {
      throw Error(ErrorCode::kInvalidArgument, "the job's description holds a character that stands for no byte");
    }
  }
  return bytes;
}

Json with_strings(Json value, std::string (*convert)(const std::string&)) {
  if (value.is_string()) return convert(value.get_ref<const std::string&>());
  if (value.is_structured()) {
    for (Json& each : value) each = with_strings(std::move(each), convert);
  }
  return value;
}

}  // namespace

Json with_bytes_as_characters(Json description) { return with_strings(std::move(description), characters_of); }

Json with_characters_as_bytes(Json description) { return with_strings(std::move(description), bytes_of); }

}  // namespace gyre::launch
