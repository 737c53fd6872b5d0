#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gyre::jobs::orders {

/// Reads the members of one JSON object that nobody vouches for. Error(kCorruptData) names what is wrong and where.
class JsonFields {
 public:
  /// `json` must outlive this object. `what` names the object in messages.
  JsonFields(const nlohmann::json& json, std::string_view what);

  bool has(const char* name) const;
  const nlohmann::json& at(const char* name) const;
  /// Without a character NUL, at most `longest` bytes.
  std::string text(const char* name, std::size_t longest = kLongestText) const;
  std::string text_or(const char* name, std::string_view otherwise) const;
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high) const;
  std::int64_t integer_or(const char* name, std::int64_t low, std::int64_t high, std::int64_t otherwise) const;
  bool boolean(const char* name) const;
  /// An array of at most `most` elements.
  const nlohmann::json& array(const char* name, std::size_t most) const;

  [[noreturn]] void refuse(const char* name, std::string_view why) const;

 private:
  static constexpr std::size_t kLongestText = std::size_t{1} << 20;

  const nlohmann::json& json_;
  std::string what_;
};

/// Parses text of at most `most_bytes`, nested at most 64 deep. Error(kCorruptData) names `what`.
nlohmann::json parse_json(std::string_view text, std::size_t most_bytes, std::string_view what);

}  // namespace gyre::jobs::orders
