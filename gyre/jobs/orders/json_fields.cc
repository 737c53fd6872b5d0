#include "gyre/jobs/orders/json_fields.h"

#include <fmt/format.h>

#include <limits>

#include "gyre/base/error.h"

namespace gyre::jobs::orders {

namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 64;

}  // namespace

JsonFields::JsonFields(const Json& json, std::string_view what) : json_(json), what_(what) {
  if (!json.is_object()) throw Error(ErrorCode::kCorruptData, fmt::format("{} is not a JSON object", what_));
}

void JsonFields::refuse(const char* name, std::string_view why) const {
  throw Error(ErrorCode::kCorruptData, fmt::format("{}: {} {}", what_, name, why));
}

bool JsonFields::has(const char* name) const {
  const auto found = json_.find(name);
  return found != json_.end() && !found->is_null();
}

const Json& JsonFields::at(const char* name) const {
  const auto found = json_.find(name);
  if (found == json_.end()) refuse(name, "is missing");
  return *found;
}

std::string JsonFields::text(const char* name, std::size_t longest) const {
  const Json& value = at(name);
  if (!value.is_string()) refuse(name, "must be a string");
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() > longest) refuse(name, fmt::format("is longer than {} bytes", longest));
  if (text.find('\0') != std::string::npos) refuse(name, "holds a character NUL");
  return text;
}

std::string JsonFields::text_or(const char* name, std::string_view otherwise) const {
  return has(name) ? text(name) : std::string(otherwise);
}

std::int64_t JsonFields::integer(const char* name, std::int64_t low, std::int64_t high) const {
  const Json& value = at(name);
  constexpr auto kHighest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > kHighest);
  const std::int64_t number = fits ? value.get<std::int64_t>() : 0;
  if (!fits || number < low || number > high) {
    refuse(name, fmt::format("must be a whole number from {} to {}", low, high));
  }
  return number;
}

std::int64_t JsonFields::integer_or(const char* name, std::int64_t low, std::int64_t high,
                                    std::int64_t otherwise) const {
  return has(name) ? integer(name, low, high) : otherwise;
}

bool JsonFields::boolean(const char* name) const {
  const Json& value = at(name);
  if (!value.is_boolean()) refuse(name, "must be true or false");
  return value.get<bool>();
}

const Json& JsonFields::array(const char* name, std::size_t most) const {
  const Json& value = at(name);
  if (!value.is_array() || value.size() > most) refuse(name, fmt::format("must be an array of at most {}", most));
  return value;
}

Json parse_json(std::string_view text, std::size_t most_bytes, std::string_view what) {
  const auto fail = [&](std::string_view why) -> Error {
    return {ErrorCode::kCorruptData, fmt::format("{} {}", what, why)};
  };
  if (text.size() > most_bytes) throw fail(fmt::format("is longer than {} bytes", most_bytes));
  bool too_deep = false;
  const auto limit = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kDeepest;
    return !too_deep;
  };
  Json json = Json::parse(text, limit, /*allow_exceptions=*/false);
  if (too_deep) throw fail("is nested too deeply");
  if (json.is_discarded()) throw fail("is not valid JSON");
  return json;
}

}  // namespace gyre::jobs::orders
