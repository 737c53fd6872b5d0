#include "gyre/cli/parse_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
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

/// From "--state: qeued not in {queued,running}".
std::string describe_choice(const std::string& text) {
  constexpr std::string_view kBeforeWord = ": ";
  constexpr std::string_view kBeforeChoices = " not in {";
  const std::size_t word = text.find(kBeforeWord);
  const std::size_t choices = text.find(kBeforeChoices);
  if (word == std::string::npos || choices == std::string::npos || !text.ends_with('}')) return text;
  const std::size_t begin = word + kBeforeWord.size();
  const std::size_t first = choices + kBeforeChoices.size();
  const std::string given = text.substr(begin, choices - begin);
  const std::vector<std::string> known = split(text.substr(first, text.size() - 1 - first), ',');
  const auto meant = nearest(given, known);
  return fmt::format("{}: '{}' is not one of {}{}", text.substr(0, word), given, fmt::join(known, ", "),
                     meant ? fmt::format("; did you mean {}?", *meant) : "");
}

}  // namespace

std::string describe(const CLI::ParseError& error, const CLI::App& app) {
  std::string text = error.what();
  const bool has_extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !app.remaining().empty();
  if (has_extra) return describe_extra(app);
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) return describe_choice(text);
  const std::size_t missing = text.find(": 1 required ");
  if (missing != std::string::npos && text.ends_with(" missing")) {
    return text.substr(0, missing) + " needs a value";
  }
  return text;
}

}  // namespace gyre::cli
