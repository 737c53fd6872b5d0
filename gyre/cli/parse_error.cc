#include "gyre/cli/parse_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/parse.h"
#include "gyre/cli/option_table.h"
#include "gyre/cli/suggest.h"

namespace gyre::cli {

namespace {

/// The first word that is neither an option nor an option's value.
std::string describe_extra(const CLI::App& app) {
  const std::string word = app.remaining().front();
  if (!word.starts_with('-')) return fmt::format("unexpected argument '{}'", word);
  return no_such_option(word.substr(0, word.find('=')), option_names(app));
}

using Parts = std::pair<std::string, std::string>;

/// What stands before and behind `between`, where it comes first; nothing where it is missing.
std::optional<Parts> split_at(const std::string& text, std::string_view between) {
  const std::size_t place = text.find(between);
  if (place == std::string::npos) return std::nullopt;
  return Parts{text.substr(0, place), text.substr(place + between.size())};
}

/// The same where it comes last.
std::optional<Parts> split_at_last(const std::string& text, std::string_view between) {
  const std::size_t place = text.rfind(between);
  if (place == std::string::npos) return std::nullopt;
  return Parts{text.substr(0, place), text.substr(place + between.size())};
}

/// How CLI11 describes the option's values in --help: "UINT", "INT:{0,1}", "FLOAT:FLOAT in [0 - 1]".
std::string type_of(const std::string& name, const CLI::App& app) {
  const CLI::Option* const option = app.get_option_no_throw(name);
  return option == nullptr ? "" : option->get_type_name();
}

std::string number_of(const std::string& type) {
  return type.starts_with("INT") || type.starts_with("UINT") ? "a whole number" : "a number";
}

/// "0.5" for "0.500000", as CLI11 writes numbers that may be fractions.
std::string shortest(const std::string& number) {
  return number.find('.') == std::string::npos ? number : fmt::format("{}", std::strtod(number.c_str(), nullptr));
}

/// `choices`: "queued,running}", as CLI11 ends a list.
std::string describe_choice(const std::string& option, const std::string& given, std::string_view choices) {
  const std::vector<std::string> known = split(choices.substr(0, choices.size() - 1), ',');
  const auto meant = nearest(given, known);
  return fmt::format("{}: '{}' is not one of {}{}", option, given, fmt::join(known, ", "),
                     meant ? fmt::format("; did you mean {}?", *meant) : "");
}

/// From "--state: qeued not in {queued,running}", "--port: Value 0 not in range 1 to 9", or "--depth: x", where a word
/// is not even of the choices' type.
std::string describe_value(const std::string& text, const CLI::App& app) {
  constexpr std::string_view kValue = "Value ";
  const auto parts = split_at(text, ": ");
  if (!parts) return text;
  const auto& [option, mistake] = *parts;
  const auto choice = split_at_last(mistake, " not in {");
  if (choice && mistake.ends_with('}')) return describe_choice(option, choice->first, choice->second);
  const std::string type = type_of(option, app);
  const auto range = split_at_last(mistake, " not in range ");
  const auto ends = range ? split_at(range->second, " to ") : std::nullopt;
  if (ends && range->first.starts_with(kValue)) {
    return fmt::format("{}: '{}' is not {} from {} to {}", option, range->first.substr(kValue.size()), number_of(type),
                       shortest(ends->first), shortest(ends->second));
  }
  const auto choices = split_at(type, "{");
  const bool is_word = mistake.find(' ') == std::string::npos;
  if (choices && type.ends_with('}') && is_word) return describe_choice(option, mistake, choices->second);
  return text;
}

/// From "Could not convert: --port = ten".
std::string describe_conversion(const std::string& text, const CLI::App& app) {
  const auto behind = split_at(text, "Could not convert: ");
  const auto parts = behind ? split_at(behind->second, " = ") : std::nullopt;
  if (!parts) return text;
  return fmt::format("{}: '{}' is not {}", parts->first, parts->second, number_of(type_of(parts->first, app)));
}

}  // namespace

std::string describe(const CLI::ParseError& error, const CLI::App& app) {
  std::string text = error.what();
  const bool has_extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !app.remaining().empty();
  if (has_extra) return describe_extra(app);
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) return describe_value(text, app);
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) return describe_conversion(text, app);
  const std::size_t missing = text.find(": 1 required ");
  if (missing != std::string::npos && text.ends_with(" missing")) {
    return text.substr(0, missing) + " needs a value";
  }
  // "--port: At Most 1 required but received 2"; one word for each time that it was given.
  const auto again = split_at(text, ": At Most 1 required but received ");
  if (again) return again->first + (again->second == "2" ? " is given twice" : " is given more than once");
  return text;
}

}  // namespace gyre::cli
