#include "gyre/jobs/client/ignore_rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <ranges>
#include <utility>

namespace gyre::jobs::client {

namespace {

constexpr std::string_view kSpecial = "*?[\\";

enum class Slashes { kCount, kAreLikeOthers };

enum class Match {
  kYes,
  kNo,
  kNever,          ///< Nor at any later place of the text.
  kNotBeforeSlash  ///< Nor at a later place before the next slash.
};

/// [:alpha:] and its like. Nothing for a name that there is not.
std::optional<bool> is_of_class(std::string_view name, unsigned char c) {
  using Test = int (*)(int);
  static constexpr std::array<std::pair<std::string_view, Test>, 12> kClasses = {{{"alnum", std::isalnum},
                                                                                  {"alpha", std::isalpha},
                                                                                  {"blank", std::isblank},
                                                                                  {"cntrl", std::iscntrl},
                                                                                  {"digit", std::isdigit},
                                                                                  {"graph", std::isgraph},
                                                                                  {"lower", std::islower},
                                                                                  {"print", std::isprint},
                                                                                  {"punct", std::ispunct},
                                                                                  {"space", std::isspace},
                                                                                  {"upper", std::isupper},
                                                                                  {"xdigit", std::isxdigit}}};
  const auto* const found = std::ranges::find(kClasses, name, &std::pair<std::string_view, Test>::first);
  if (found == kClasses.end()) return std::nullopt;
  return c < 0x80 && found->second(c) != 0;
}

/// A pattern and a text, of which the rest from some place on is compared. Follows git's wildmatch.c step by step: what
/// is malformed matches what it matches there.
class Wildcards {
 public:
  Wildcards(std::string_view pattern, Slashes slashes) : pattern_(pattern), slashes_(slashes) {}

  Match match(std::size_t at, std::string_view text) const {
    for (; at < pattern_.size(); ++at, text.remove_prefix(1)) {
      const char wanted = pattern_[at];
      if (text.empty() && wanted != '*') return Match::kNever;
      if (wanted == '*') {
        if (const auto result = star(at, text)) return *result;
        continue;  // At the slash behind one name.
      }
      if (wanted == '[') {
        const Match result = set(at, static_cast<unsigned char>(text.front()));
        if (result != Match::kYes) return result;
      } else if (wanted == '?') {
        if (slashes_ == Slashes::kCount && text.front() == '/') return Match::kNo;
      } else {
        if (wanted == '\\') ++at;
        if (text.front() != character(at)) return Match::kNo;
      }
    }
    return text.empty() ? Match::kYes : Match::kNo;
  }

 private:
  /// 0 behind its end.
  char character(std::size_t at) const { return at < pattern_.size() ? pattern_[at] : '\0'; }

  /// One star or more at `at`. Nothing: goes on at a slash of both.
  std::optional<Match> star(std::size_t& at, std::string_view& text) const {
    bool crosses = slashes_ != Slashes::kCount;
    const std::size_t first = at++;
    if (character(at) == '*') {
      while (character(at) == '*') ++at;
      const bool begins = first == 0 || pattern_[first - 1] == '/';
      const bool ends =
          at >= pattern_.size() || character(at) == '/' || (character(at) == '\\' && character(at + 1) == '/');
      if (slashes_ == Slashes::kCount && begins && ends) {
        // "a/**/b" is also "a/b".
        if (character(at) == '/' && match(at + 1, text) == Match::kYes) return Match::kYes;
        crosses = true;
      }
    }
    const bool holds_slash = text.find('/') != std::string_view::npos;
    if (at >= pattern_.size()) return crosses || !holds_slash ? Match::kYes : Match::kNo;
    if (!crosses && character(at) == '/') {
      if (!holds_slash) return Match::kNo;
      text.remove_prefix(text.find('/'));
      return std::nullopt;
    }
    return behind_star(at, text, crosses);
  }

  Match behind_star(std::size_t at, std::string_view text, bool crosses) const {
    const bool is_literal = kSpecial.find(character(at)) == std::string_view::npos;
    for (;; text.remove_prefix(1)) {
      if (text.empty()) return Match::kNever;
      if (is_literal) {  // On to where it can go on.
        while (!text.empty() && text.front() != character(at) && (crosses || text.front() != '/'))
          text.remove_prefix(1);
        if (text.empty() || text.front() != character(at)) return Match::kNo;
      }
      const Match result = match(at, text);
      if (result != Match::kNo) {
        if (!crosses || result != Match::kNotBeforeSlash) return result;
      } else if (!crosses && text.front() == '/') {
        return Match::kNotBeforeSlash;
      }
    }
  }

  /// One of the alternatives of "[…]", at `at`, of which `last` was the one before; 0 where a range cannot begin there.
  Match alternative(std::size_t& at, unsigned char c, unsigned char& last, bool& matched) const {
    auto here = static_cast<unsigned char>(character(at));
    const auto escaped = [&] {
      if (here == '\\') here = static_cast<unsigned char>(character(++at));
      return at < pattern_.size();
    };
    if (here == '-' && last != 0 && at + 1 < pattern_.size() && character(at + 1) != ']') {
      here = static_cast<unsigned char>(character(++at));
      if (!escaped()) return Match::kNever;
      matched |= last <= c && c <= here;
      last = 0;
      return Match::kYes;
    }
    if (here == '[' && character(at + 1) == ':') {
      const std::size_t end = pattern_.find(']', at + 2);
      if (end == std::string_view::npos) return Match::kNever;
      if (end > at + 2 && pattern_[end - 1] == ':') {
        const auto in_class = is_of_class(pattern_.substr(at + 2, end - at - 3), c);
        if (!in_class) return Match::kNever;
        matched |= *in_class;
        at = end;
        last = 0;
        return Match::kYes;
      }
    }
    if (!escaped()) return Match::kNever;
    matched |= here == c;
    last = here;
    return Match::kYes;
  }

  /// "[…]" at `at`, which is left at its end.
  Match set(std::size_t& at, unsigned char c) const {
    ++at;
    const bool negated = character(at) == '!' || character(at) == '^';
    if (negated) ++at;
    bool matched = false;
    unsigned char last = 0;
    do {
      if (at >= pattern_.size()) return Match::kNever;
      if (const Match result = alternative(at, c, last, matched); result != Match::kYes) return result;
      ++at;
    } while (character(at) != ']');
    return matched == negated || (slashes_ == Slashes::kCount && c == '/') ? Match::kNo : Match::kYes;
  }

  std::string_view pattern_;
  Slashes slashes_;
};

bool fits(std::string_view pattern, std::string_view text, Slashes slashes) {
  return Wildcards(pattern, slashes).match(0, text) == Match::kYes;
}

/// Without the spaces at its end that no backslash keeps.
std::string_view trimmed(std::string_view line) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const bool is_escape = line[at] == '\\';
    if (is_escape && ++at == line.size()) return line;
    if (is_escape || line[at] != ' ') end = at + 1;
  }
  return line.substr(0, end);
}

}  // namespace

IgnoreRules::IgnoreRules(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    if (line.ends_with('\r')) line.remove_suffix(1);
    line = trimmed(line);
    Rule rule;
    rule.keeps = line.starts_with('!');
    if (rule.keeps) line.remove_prefix(1);
    rule.folders_only = line.ends_with('/');
    if (rule.folders_only) line.remove_suffix(1);
    rule.name_only = line.find('/') == std::string_view::npos;
    if (line.starts_with('/')) line.remove_prefix(1);
    rule.pattern = line;
    rule.literal = std::min(line.find_first_of(kSpecial), line.size());
    rules_.push_back(std::move(rule));
  }
}

bool IgnoreRules::matches(const Rule& rule, std::string_view path) {
  std::string_view pattern = rule.pattern;
  if (rule.name_only) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    return rule.literal == pattern.size() ? name == pattern : fits(pattern, name, Slashes::kAreLikeOthers);
  }
  // As git does: what stands for itself is compared first, and the rest counts as a pattern that begins there.
  if (path.substr(0, rule.literal) != pattern.substr(0, rule.literal)) return false;
  pattern.remove_prefix(rule.literal);
  path.remove_prefix(rule.literal);
  return pattern.empty() ? path.empty() : fits(pattern, path, Slashes::kCount);
}

std::optional<bool> IgnoreRules::verdict(std::string_view path, bool is_folder) const {
  for (const Rule& rule : std::views::reverse(rules_)) {
    if ((!rule.folders_only || is_folder) && matches(rule, path)) return !rule.keeps;
  }
  return std::nullopt;
}

}  // namespace gyre::jobs::client
