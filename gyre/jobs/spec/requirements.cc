#include "gyre/jobs/spec/requirements.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "gyre/jobs/spec/internal/utf8.h"

namespace gyre::jobs::spec {

namespace {

using std::string_view;

constexpr string_view kSpaces = " \t\r\f\v";

bool is_space(char c) { return kSpaces.find(c) != string_view::npos; }

enum class Complaint { kNone, kInclude, kLocal, kRelative };

/// A line as pip reads it: continued ones are one, without comments.
struct Line {
  int number = 1;  ///< Of its first part.
  std::string text{};
};

string_view trimmed(string_view text) {
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

/// From a "#" at the beginning or behind a space on; "#" in an address is a fragment.
string_view without_comment(string_view line) {
  for (std::size_t at = line.find('#'); at != string_view::npos; at = line.find('#', at + 1)) {
    if (at == 0 || is_space(line[at - 1])) return line.substr(0, at);
  }
  return line;
}

std::vector<Line> lines_of(string_view text) {
  std::vector<Line> lines;
  bool continued = false;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find_first_of("\n\r"), text.size());
    string_view part = text.substr(0, end);
    const bool is_pair = text.substr(end).starts_with("\r\n");
    text.remove_prefix(std::min(text.size(), end + (is_pair ? 2 : 1)));
    const bool is_comment = without_comment(part) != part;  // Its backslash continues nothing.
    const bool goes_on = !is_comment && part.ends_with('\\');
    if (goes_on) part.remove_suffix(1);
    if (!continued) lines.push_back({number, ""});
    lines.back().text += part;
    continued = goes_on;
  }
  for (Line& line : lines) line.text = trimmed(without_comment(line.text));
  std::erase_if(lines, [](const Line& line) { return line.text.empty(); });
  return lines;
}

/// As a shell divides them; pip reads options so.
std::vector<std::string> words_of(string_view text) {
  std::vector<std::string> words;
  char quote = '\0';
  bool in_word = false;
  for (const char c : text) {
    if (quote == '\0' && is_space(c)) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else {
      words.back() += c;
    }
  }
  return words;
}

/// "git+https" of "git+https://host/project"; empty where none begins it.
string_view scheme_of(string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == string_view::npos || colon < 2) return {};
  const bool is_one = std::ranges::all_of(text.substr(0, colon), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
           c == '.';
  });
  return is_one ? text.substr(0, colon) : string_view{};
}

bool is_file_scheme(string_view scheme) {
  std::string lower(scheme);
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return lower == "file" || lower.ends_with("+file");
}

bool is_address(string_view text) {
  const string_view scheme = scheme_of(text);
  return !scheme.empty() && !is_file_scheme(scheme);
}

bool is_archive(string_view name) {
  constexpr std::array<string_view, 12> kEndings = {".whl", ".zip", ".tar.gz", ".tgz",    ".tar", ".tar.bz2",
                                                    ".tbz", ".txz", ".tar.xz", ".tar.lz", ".tlz", ".tar.lzma"};
  return std::ranges::any_of(kEndings, [&](string_view ending) { return name.ends_with(ending); });
}

/// "name", "name[extra]>=1; marker", "name @ address", an address, or a path.
bool is_local(string_view requirement) {
  if (is_address(requirement)) return false;
  if (requirement.starts_with('.') || is_file_scheme(scheme_of(requirement))) return true;
  constexpr string_view kOfNames =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-[], \t";  // And of their extras.
  const std::size_t at = requirement.find_first_not_of(kOfNames);
  if (at != string_view::npos && at > 0 && requirement[at] == '@') {
    return !is_address(trimmed(requirement.substr(at + 1)));
  }
  string_view name = trimmed(requirement.substr(0, requirement.find(';')));
  if (name.ends_with(']')) name = trimmed(name.substr(0, name.rfind('[')));
  return name.find('/') != string_view::npos || is_archive(name);
}

/// How pip's option may be written in full, at the least: its parser takes unambiguous beginnings.
struct Option {
  string_view letter{};  ///< "-r"; empty: none.
  string_view name{};
  std::size_t fewest = 0;  ///< Characters of the name.
  Complaint complaint = Complaint::kNone;
};

constexpr std::array kOptions = {
    Option{"-r", "--requirement", 10, Complaint::kInclude},  Option{"-c", "--constraint", 6, Complaint::kInclude},
    Option{"-e", "--editable", 4, Complaint::kLocal},        Option{"-f", "--find-links", 3, Complaint::kRelative},
    Option{"-i", "--index-url", 3, Complaint::kRelative},    Option{"", "--pypi-url", 4, Complaint::kRelative},
    Option{"", "--extra-index-url", 5, Complaint::kRelative}};

/// What `value` means for `option`.
Complaint complaint_about(const Option& option, string_view value) {
  switch (option.complaint) {
    case Complaint::kLocal: return is_address(value) ? Complaint::kNone : Complaint::kLocal;
    case Complaint::kRelative: {
      const bool fits = value.starts_with('/') || value.starts_with("${") || !scheme_of(value).empty();
      return fits ? Complaint::kNone : Complaint::kRelative;
    }
    case Complaint::kInclude:
    case Complaint::kNone: break;
  }
  return option.complaint;
}

Complaint complaint_about_options(string_view text) {
  const std::vector<std::string> words = words_of(text);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const string_view word = words[i];
    const bool is_long = word.starts_with("--");
    const std::size_t equals = is_long ? std::min(word.find('='), word.size()) : 2;
    const auto* option = std::ranges::find_if(kOptions, [&](const Option& each) {
      if (!is_long) return !each.letter.empty() && word.starts_with(each.letter);
      const string_view name = word.substr(0, equals);
      return name.size() >= each.fewest && each.name.starts_with(name);
    });
    if (option == kOptions.end()) continue;
    string_view value = word.substr(std::min(word.size(), equals + (is_long ? 1 : 0)));
    if (value.empty() && i + 1 < words.size()) value = words[++i];
    if (const Complaint found = complaint_about(*option, value); found != Complaint::kNone) return found;
  }
  return Complaint::kNone;
}

/// The requirement ends where the first option begins.
Complaint complaint_about_line(string_view line) {
  std::size_t options = line.starts_with('-') ? 0 : std::min(line.find(" -"), line.size());
  const string_view requirement = trimmed(line.substr(0, options));
  if (!requirement.empty()) return is_local(requirement) ? Complaint::kLocal : Complaint::kNone;
  return complaint_about_options(line.substr(options));
}

/// 0: there is none.
int line_that_is_no_text(string_view text) {
  for (int line = 1; !text.empty();) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0 || text.front() == '\0') return line;
    if (text.front() == '\n') ++line;
    text.remove_prefix(bytes);
  }
  return 0;
}

string_view reason_for(Complaint complaint) {
  switch (complaint) {
    case Complaint::kInclude: return "names another file, which nodes do not have; put its lines in here";
    case Complaint::kLocal:
      return "names files that nodes do not have, or would keep as they were; name packages of an index or an "
             "address, and send your own code with --code";
    case Complaint::kRelative: return "names a folder that nodes do not have; give an address or an absolute path";
    case Complaint::kNone: break;
  }
  return {};
}

}  // namespace

std::optional<std::string> refusal_of_requirements(string_view text) {
  if (const int line = line_that_is_no_text(text); line > 0) {
    return fmt::format("line {} is not UTF-8 text; save the file as UTF-8", line);
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (const Line& line : lines_of(text)) {
    const string_view reason = reason_for(complaint_about_line(line.text));
    if (!reason.empty()) return fmt::format("line {}, '{}', {}", line.number, line.text, reason);
  }
  return std::nullopt;
}

std::vector<std::string> requirement_lines(string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\n\r"), text.size());
    const bool is_pair = text.substr(end).starts_with("\r\n");
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + (is_pair ? 2 : 1)));
  }
  return lines;
}

std::string requirements_text(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace gyre::jobs::spec
