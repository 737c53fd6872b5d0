#include "gyre/jobs/spec/internal/object_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "gyre/cli/suggest.h"

namespace gyre::jobs::spec {

namespace {

const Value kEmptyObject = [] {
  Value empty;
  empty.kind = Value::Kind::kObject;
  return empty;
}();

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

/// The whole number that a text is: "2", "2.0", "2e0". Nothing for others and for those far out of an int's range.
std::optional<std::int64_t> whole_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr double kMost = 1e15;
  if (failure != std::errc() || end != text.data() + text.size() || !(std::abs(value) < kMost)) return std::nullopt;
  if (value != std::floor(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

/// A text as a message shows it: short, in quotes, without control characters.
std::string quoted(std::string_view text) { return fmt::format("\"{}\"", pointer_step(text)); }

}  // namespace

void ProblemLog::warning(const Place& place, std::string message) {
  add(strict_ ? Severity::kError : Severity::kWarning, place, std::move(message));
}

bool ProblemLog::has_error() const {
  return std::ranges::any_of(problems_, [](const Problem& problem) { return problem.severity == Severity::kError; });
}

bool ProblemLog::takes_warnings() const {
  const Severity severity = strict_ ? Severity::kError : Severity::kWarning;
  return std::ranges::count(problems_, severity, &Problem::severity) < static_cast<std::ptrdiff_t>(kMostProblems);
}

std::vector<Problem> ProblemLog::take() {
  std::multimap<int, Problem> by_line;  // Keeps the order of those that share a line.
  for (Problem& problem : problems_) by_line.emplace(problem.line, std::move(problem));
  std::vector<Problem> sorted;
  for (auto& [line, problem] : by_line) sorted.push_back(std::move(problem));
  return sorted;
}

void ProblemLog::add(Severity severity, const Place& place, std::string message) {
  const auto alike = std::ranges::count(problems_, severity, &Problem::severity);
  if (alike >= static_cast<std::ptrdiff_t>(kMostProblems)) return;
  // A property that is looked at twice is reported once.
  const bool known = std::ranges::any_of(problems_, [&](const Problem& problem) {
    return problem.pointer == place.pointer && problem.line == place.line && problem.message == message;
  });
  if (!known) problems_.push_back({severity, place.pointer, place.line, std::move(message)});
}

bool same_without_case(std::string_view a, std::string_view b) { return std::ranges::equal(a, b, {}, lower, lower); }

ObjectReader::ObjectReader(const Value& value, Place place, Reading& reading)
    : value_(&value), place_(std::move(place)), reading_(&reading) {
  if (value.kind != Value::Kind::kObject) {
    reading.log.error(place_, fmt::format("{}must be an object, not {}", place_.pointer.empty() ? "the file " : "",
                                          kind_name(value.kind)));
    value_ = &kEmptyObject;
  }
  used_.resize(value_->members.size());
}

Place ObjectReader::place_of(std::string_view name) const {
  for (const Member& member : value_->members) {
    if (same_without_case(member.name, name)) return {place_.pointer + "/" + pointer_step(member.name), member.line};
  }
  return {place_.pointer + "/" + std::string(name), place_.line};
}

const Value* ObjectReader::find(std::string_view name) {
  asked_for_.emplace_back(name);
  const Value* found = nullptr;
  std::string_view spelling;
  for (std::size_t index = 0; index < value_->members.size(); ++index) {
    const Member& member = value_->members[index];
    if (!same_without_case(member.name, name)) continue;
    if (used_[index]) return member.value.kind == Value::Kind::kNull ? nullptr : &member.value;
    used_[index] = true;
    const Place place{place_.pointer + "/" + pointer_step(member.name), member.line};
    if (found != nullptr) {
      // The same spelling was reported when the document was read.
      if (member.name != spelling)
        reading_->log.error(place, fmt::format("is given twice: {} is the same property", spelling));
    } else if (member.name != name) {
      reading_->log.warning(place, fmt::format("is spelled \"{}\"", name));
    }
    found = &member.value;
    spelling = member.name;
  }
  return found == nullptr || found->kind == Value::Kind::kNull ? nullptr : found;
}

bool ObjectReader::has(std::string_view name) { return find(name) != nullptr; }

std::optional<std::string> ObjectReader::scalar_text(const Value& value, const Place& place) {
  if (value.kind == Value::Kind::kList || value.kind == Value::Kind::kObject || value.kind == Value::Kind::kNull) {
    reading_->log.error(place, fmt::format("must be text, not {}", kind_name(value.kind)));
    return std::nullopt;
  }
  if (value.text.find('\0') != std::string::npos) {
    reading_->log.error(place, "has a NUL character");
    return std::nullopt;
  }
  if (value.text.size() > kLongestArgument) {
    reading_->log.error(place, fmt::format("has {} bytes; {} are the limit, because Linux takes at most 131072 in one "
                                           "argument or variable: put the text into a script or another file",
                                           value.text.size(), kLongestArgument));
    return std::nullopt;
  }
  if (value.kind != Value::Kind::kText && !value.plain)
    reading_->log.warning(place, fmt::format("must be text, not {}: put it in quotes", kind_name(value.kind)));
  return value.text;
}

std::optional<std::string> ObjectReader::text(std::string_view name) {
  const Value* found = find(name);
  return found == nullptr ? std::nullopt : scalar_text(*found, place_of(name));
}

std::optional<std::string> ObjectReader::text_or_nothing(std::string_view name) {
  std::optional<std::string> found = text(name);
  return found && found->empty() ? std::nullopt : found;
}

std::string ObjectReader::required_text(std::string_view name) {
  const Value* found = find(name);
  if (found == nullptr) {
    missing(name);
    return "";
  }
  const std::optional<std::string> text = scalar_text(*found, place_of(name));
  if (text && text->empty()) error(name, "is empty");
  return text.value_or("");
}

std::optional<int> ObjectReader::integer(std::string_view name, int least, int most) {
  const Value* found = find(name);
  if (found == nullptr) return std::nullopt;
  const bool is_number = found->kind == Value::Kind::kNumber;
  const auto number = is_number || found->kind == Value::Kind::kText ? whole_number(found->text) : std::nullopt;
  if (!number || *number < least || *number > most) {
    const bool scalar = found->kind != Value::Kind::kList && found->kind != Value::Kind::kObject;
    const std::string given = is_number ? pointer_step(found->text)
                              : scalar  ? quoted(found->text)
                                        : std::string(kind_name(found->kind));
    error(name, fmt::format("must be a whole number from {} to {}, not {}", least, most, given));
    return std::nullopt;
  }
  if (!is_number) warning(name, "must be a number, not text: remove the quotes");
  return static_cast<int>(*number);
}

int ObjectReader::required_integer(std::string_view name, int least, int most) {
  if (!has(name)) {
    missing(name);
    return least;
  }
  return integer(name, least, most).value_or(least);
}

std::optional<ObjectReader> ObjectReader::object(std::string_view name) {
  const Value* found = find(name);
  if (found == nullptr) return std::nullopt;
  return ObjectReader(*found, place_of(name), *reading_);
}

std::optional<ObjectReader> ObjectReader::required_object(std::string_view name) {
  std::optional<ObjectReader> found = object(name);
  if (!found) missing(name);
  return found;
}

std::vector<ObjectReader> ObjectReader::objects(std::string_view name) {
  std::vector<ObjectReader> readers;
  const Value* found = find(name);
  if (found == nullptr) return readers;
  const Place place = place_of(name);
  if (found->kind != Value::Kind::kList) {
    reading_->log.error(place, fmt::format("must be a list of objects, not {}", kind_name(found->kind)));
    return readers;
  }
  if (!within_limit(found->items.size(), kMostEntries, place)) return readers;
  for (const Value& item : found->items) {
    readers.emplace_back(item, Place{fmt::format("{}/{}", place.pointer, readers.size()), item.line}, *reading_);
  }
  return readers;
}

std::vector<std::string> ObjectReader::texts(std::string_view name) {
  std::vector<std::string> texts;
  const Value* found = find(name);
  if (found == nullptr) return texts;
  const Place place = place_of(name);
  if (found->kind != Value::Kind::kList) {
    reading_->log.error(place, fmt::format("must be a list of texts, not {}", kind_name(found->kind)));
    return texts;
  }
  if (!within_limit(found->items.size(), kMostArguments, place)) return texts;
  for (const Value& item : found->items) {
    texts.push_back(scalar_text(item, {fmt::format("{}/{}", place.pointer, texts.size()), item.line}).value_or(""));
  }
  return texts;
}

std::vector<std::pair<std::string, std::string>> ObjectReader::table(std::string_view name) {
  std::vector<std::pair<std::string, std::string>> entries;
  const Value* found = find(name);
  if (found == nullptr) return entries;
  const Place place = place_of(name);
  if (found->kind != Value::Kind::kObject) {
    reading_->log.error(place, fmt::format("must be an object, not {}", kind_name(found->kind)));
    return entries;
  }
  if (!within_limit(found->members.size(), kMostEntries, place)) return entries;
  for (const Member& member : found->members) {
    const Place entry{place.pointer + "/" + pointer_step(member.name), member.line};
    if (const auto text = scalar_text(member.value, entry)) entries.emplace_back(member.name, *text);
  }
  return entries;
}

bool ObjectReader::within_limit(std::size_t count, std::size_t most, const Place& place) {
  if (count <= most) return true;
  reading_->log.error(place, fmt::format("has {} entries; {} are the limit", count, most));
  return false;
}

void ObjectReader::came_with(ApiVersion version, std::string_view name) {
  if (reading_->version >= version || !has(name)) return;
  warning(name, fmt::format("came with version {}; the file's is {}", version_name(version),
                            version_name(reading_->version)));
}

void ObjectReader::accept(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) find(name);
}

void ObjectReader::accept_until(ApiVersion last, std::string_view name, std::string_view instead) {
  if (!has(name) || reading_->version <= last) return;
  warning(name, fmt::format("has no meaning since version {}; {}",
                            version_name(static_cast<ApiVersion>(static_cast<int>(last) + 1)), instead));
}

void ObjectReader::missing(std::string_view name, std::string_view why) {
  if (value_ != &kEmptyObject) reading_->log.error(place_of(name), std::string(why));
}

void ObjectReader::incomplete(std::string message) {
  if (value_ == &kEmptyObject) return;
  reading_->log.error(place_, (place_.pointer.empty() ? "the file " : "") + std::move(message));
}

void ObjectReader::finish() {
  for (std::size_t index = 0; index < value_->members.size(); ++index) {
    if (used_[index] || !reading_->log.takes_warnings()) continue;
    const Member& member = value_->members[index];
    const auto meant = cli::nearest(member.name, asked_for_);
    reading_->log.warning({place_.pointer + "/" + pointer_step(member.name), member.line},
                          fmt::format("is not a known property{}; it is ignored",
                                      meant ? fmt::format(" (did you mean \"{}\"?)", *meant) : ""));
  }
}

void ObjectReader::log_unknown_word(std::string_view name, const std::string& found,
                                    const std::vector<std::string>& known) {
  const auto meant = cli::nearest(found, known);
  error(name,
        fmt::format("is {}; {} {} possible{}", quoted(found), fmt::join(known, ", "), known.size() == 1 ? "is" : "are",
                    meant ? fmt::format(" (did you mean \"{}\"?)", *meant) : ""));
}

}  // namespace gyre::jobs::spec
