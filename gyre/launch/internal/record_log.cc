#include "gyre/launch/internal/record_log.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace gyre::launch {

namespace {

unsigned byte_at(std::string_view bytes, std::size_t index) { return static_cast<unsigned char>(bytes[index]); }

/// How many bytes the UTF-8 character at the beginning has; 0 where there is none (RFC 3629).
std::size_t character_length(std::string_view bytes) {
  const unsigned first = byte_at(bytes, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || bytes.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(bytes, i) & 0xC0U) != 0x80U) return 0;
  }
  const unsigned second = byte_at(bytes, 1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second > 0x9F;
  const bool too_high = first == 0xF4 && second > 0x8F;
  return overlong || surrogate || too_high ? 0 : length;
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = character_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

/// RFC 4648 §4.
std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = byte_at(bytes, i) << 16U;
    if (i + 1 < bytes.size()) group |= byte_at(bytes, i + 1) << 8U;
    if (i + 2 < bytes.size()) group |= byte_at(bytes, i + 2);
    for (unsigned shift : {18U, 12U, 6U, 0U}) text += kLetters[(group >> shift) & 0x3FU];
  }
  const std::size_t missing = (3 - bytes.size() % 3) % 3;
  for (std::size_t i = 0; i < missing; ++i) text[text.size() - 1 - i] = '=';
  return text;
}

}  // namespace

void RecordLog::add(nlohmann::json record) {
  record["sequence"] = last() + 1;
  std::string line = record.dump();
  line += '\n';
  bytes_ += line.size();
  lines_.push_back(std::move(line));
  while (bytes_ > keep_bytes_ && lines_.size() > 1) {
    bytes_ -= lines_.front().size();
    lines_.pop_front();
    ++first_;
  }
}

void put_bytes(nlohmann::json& record, std::string_view bytes) {
  if (is_utf8(bytes)) {
    record["text"] = bytes;
  } else {
    record["base64"] = base64_of(bytes);
  }
}

}  // namespace gyre::launch
