#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/jobs/spec/internal/document.h"

namespace gyre::jobs::spec {

/// A place in the file, for problems.
struct Place {
  std::string pointer;
  int line = 0;
};

/// What is wrong with a file, as it is found.
class ProblemLog {
 public:
  explicit ProblemLog(bool strict) : strict_(strict) {}

  void error(const Place& place, std::string message) { add(Severity::kError, place, std::move(message)); }
  /// An error where warnings are errors.
  void warning(const Place& place, std::string message);
  bool has_error() const;
  /// False once more warnings would be dropped: a costly message need not be made.
  bool takes_warnings() const;

  /// In the order of their lines.
  std::vector<Problem> take();

 private:
  void add(Severity severity, const Place& place, std::string message);

  bool strict_;
  std::vector<Problem> problems_;
};

/// What every reader of a file needs.
struct Reading {
  const ParseOptions& options;
  ApiVersion version = ApiVersion::k2018_05_01;
  ProblemLog& log;
};

/// The words of an enum, in the spelling of the contract; they are compared without case.
template <typename Choice, std::size_t count>
using Words = std::array<std::pair<std::string_view, Choice>, count>;

/// Whether two texts are equal but for the case of ASCII letters.
bool same_without_case(std::string_view a, std::string_view b);

/// Reads one object of a file: the properties that are asked for, each once; what was not asked for is unknown. A
/// property that is missing or null reads as nothing, and so does one that is wrong, after that was logged.
class ObjectReader {
 public:
  /// A value that is not an object is an error; it then reads as an empty one that lacks nothing.
  ObjectReader(const Value& value, Place place, Reading& reading);

  const Place& place() const { return place_; }
  Place place_of(std::string_view name) const;
  Reading& reading() const { return *reading_; }

  bool has(std::string_view name);
  std::optional<std::string> text(std::string_view name);
  /// Empty text counts as missing.
  std::optional<std::string> text_or_nothing(std::string_view name);
  /// Missing, empty or wrong: logged, and "".
  std::string required_text(std::string_view name);
  std::optional<int> integer(std::string_view name, int least, int most);
  int required_integer(std::string_view name, int least, int most);
  std::optional<ObjectReader> object(std::string_view name);
  /// As object(), and logged where it is missing.
  std::optional<ObjectReader> required_object(std::string_view name);
  /// The objects of a list; none where it is missing.
  std::vector<ObjectReader> objects(std::string_view name);
  /// The texts of a list.
  std::vector<std::string> texts(std::string_view name);
  /// The names and texts of an object that is a table.
  std::vector<std::pair<std::string, std::string>> table(std::string_view name);
  const Value* value(std::string_view name) { return find(name); }
  const Value& whole() const { return *value_; }

  template <typename Choice, std::size_t count>
  std::optional<Choice> choice(std::string_view name, const Words<Choice, count>& words) {
    const std::optional<std::string> found = text_or_nothing(name);
    if (!found) return std::nullopt;
    std::vector<std::string> known;
    for (const auto& [word, meaning] : words) {
      if (same_without_case(*found, word)) return meaning;
      known.emplace_back(word);
    }
    log_unknown_word(name, *found, known);
    return std::nullopt;
  }

  /// The property came with `version`: a warning where it stands in a file of an older one.
  void came_with(ApiVersion version, std::string_view name);
  /// The property is known and has no meaning here: nothing is said.
  void accept(std::initializer_list<std::string_view> names);
  /// The property was there until `last`: a warning, with `instead`, in a file of a newer version.
  void accept_until(ApiVersion last, std::string_view name, std::string_view instead);

  void error(std::string_view name, std::string message) { reading_->log.error(place_of(name), std::move(message)); }
  void warning(std::string_view name, std::string message) {
    reading_->log.warning(place_of(name), std::move(message));
  }
  /// The property `name` is missing.
  void missing(std::string_view name, std::string_view why = "is missing");

  /// The object as a whole: "has no toolkit block".
  void incomplete(std::string message);

  /// Warns of every property that was not asked for.
  void finish();

 private:
  const Value* find(std::string_view name);
  /// Its text, where the value is a scalar; logs where it is none.
  std::optional<std::string> scalar_text(const Value& value, const Place& place);
  bool within_limit(std::size_t count, std::size_t most, const Place& place);
  void log_unknown_word(std::string_view name, const std::string& found, const std::vector<std::string>& known);

  const Value* value_;
  Place place_;
  Reading* reading_;
  std::vector<bool> used_;              ///< By index of the object's members.
  std::vector<std::string> asked_for_;  ///< Names, for suggestions.
};

}  // namespace gyre::jobs::spec
