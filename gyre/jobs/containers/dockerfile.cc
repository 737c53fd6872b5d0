#include "gyre/jobs/containers/dockerfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/cli/table.h"

namespace gyre::jobs::containers {

namespace {

using std::string_view;

constexpr std::size_t kMostBytes = std::size_t{64} << 10;
constexpr string_view kSpaces = " \t";
constexpr std::array<string_view, 17> kNames = {"FROM", "RUN",     "CMD",   "LABEL",      "MAINTAINER", "EXPOSE",
                                                "ENV",  "ADD",     "COPY",  "USER",       "ENTRYPOINT", "VOLUME",
                                                "ARG",  "WORKDIR", "SHELL", "STOPSIGNAL", "HEALTHCHECK"};

[[noreturn]] void refuse(int line, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", line, why));
}

string_view trimmed(string_view text) {
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) + 1 - first);
}

std::string upper(string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; });
  return result;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool is_in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return text;
}

/// What one reader takes as a space or an end, and another as text: anything but tabs among control characters, and
/// the spaces of Unicode.
bool is_ambiguous(string_view line) {
  constexpr std::array<string_view, 9> kOfUnicode = {"\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80",
                                                     "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf",
                                                     "\xe2\x81\x9f", "\xe3\x80\x80", "\x7f"};
  const auto has = [&](string_view space) { return line.find(space) != string_view::npos; };
  if (std::ranges::any_of(kOfUnicode, has)) return true;
  if (std::ranges::any_of(line, [](char c) { return c >= 0 && c < ' ' && c != '\t'; })) return true;
  for (char last = '\x80'; last <= '\x8a'; ++last) {
    if (has(std::string("\xe2\x80") + last)) return true;
  }
  return false;
}

/// Without quotes, in which a builder would look for the end of a flag.
bool is_plain_flag(string_view flag) {
  return std::ranges::all_of(
      flag, [](char c) { return is_in_name(c) || string_view("-=:./@,+${}").find(c) != string_view::npos; });
}

/// A file of the context, or an address that is fetched as it is; builders clone others as git repositories.
bool is_plain_source(string_view source) {
  if (source.find_first_of("$\\\"'") != string_view::npos) return false;
  const bool is_address = source.starts_with("http://") || source.starts_with("https://");
  const bool may_be_git = source.find(".git") != string_view::npos || source.find('@') != string_view::npos;
  return is_address ? !may_be_git : source.find(':') == string_view::npos && !source.starts_with("github.com/");
}

/// The name of a stage, which cannot be taken for anything else.
bool is_stage_name(string_view name) {
  const bool letter = !name.empty() && upper(name.substr(0, 1)) >= "A" && upper(name.substr(0, 1)) <= "Z";
  return letter && std::ranges::all_of(name, [](char c) { return is_in_name(c) || c == '-' || c == '.'; });
}

std::string first_word(string_view& line) {
  const std::size_t end = std::min(line.find_first_of(kSpaces), line.size());
  std::string word(line.substr(0, end));
  line = trimmed(line.substr(end));
  return word;
}

/// Of the lines before the first that is something else: builders read settings there.
void check_directive(int number, string_view comment) {
  const std::size_t equals = comment.find('=');
  if (equals == string_view::npos || upper(trimmed(comment.substr(1, equals - 1))) != "ESCAPE") return;
  if (trimmed(comment.substr(equals + 1)) != "\\") refuse(number, "another escape character than \\ is not supported");
}

}  // namespace

Dockerfile::Dockerfile(string_view text) : instructions_(instructions_in(text)) {
  for (Instruction& instruction : instructions_) read(instruction);
  if (stages_.empty()) refuse(1, "there is no FROM");
}

std::vector<Dockerfile::Instruction> Dockerfile::instructions_in(string_view text) {
  if (text.size() > kMostBytes) refuse(1, fmt::format("it has more than {} bytes", kMostBytes));
  if (text.find('\0') != string_view::npos) refuse(1, "it is not text");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::vector<Instruction> found;
  bool goes_on = false;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const string_view content = trimmed(line);
    if (content.empty()) continue;
    if (content.starts_with('#')) {
      if (found.empty()) check_directive(number, content);
      continue;
    }
    if (is_ambiguous(line)) refuse(number, "it has a character in it that is neither text nor a plain space");
    const bool has_more = content.ends_with('\\');
    const string_view part = has_more ? content.substr(0, content.size() - 1) : content;
    if (!goes_on) found.push_back({.line = number, .name = {}, .flags = {}, .rest = {}, .image = {}});
    // What stands before the backslash counts, with its spaces.
    found.back().rest +=
        goes_on ? std::string(line.substr(0, line.rfind(part.empty() ? "\\" : part) + part.size())) : std::string(part);
    goes_on = has_more;
  }
  if (goes_on) refuse(found.back().line, "nothing follows the last \\");
  for (Instruction& instruction : found) {
    string_view rest = instruction.rest;
    instruction.name = upper(first_word(rest));
    while (rest.starts_with("--")) {
      instruction.flags.push_back(first_word(rest));
      if (is_plain_flag(instruction.flags.back())) continue;
      refuse(instruction.line,
             fmt::format("{} {} is not supported", instruction.name, cli::printable(instruction.flags.back())));
    }
    instruction.rest = std::string(rest);
  }
  return found;
}

void Dockerfile::read(Instruction& instruction) {
  const std::string& name = instruction.name;
  if (name == "ONBUILD") refuse(instruction.line, "ONBUILD is not supported");
  if (std::ranges::find(kNames, name) == kNames.end()) {
    refuse(instruction.line, fmt::format("'{}' is not an instruction", cli::printable(name)));
  }
  if (instruction.rest.find("<<") != std::string::npos && (name == "RUN" || name == "COPY" || name == "ADD")) {
    refuse(instruction.line, "here-documents (<<) are not supported");
  }
  if (name == "FROM") return read_from(instruction);
  if (name == "COPY" || name == "ADD") return read_copy(instruction);
  if (name == "HEALTHCHECK") return;
  if (!instruction.flags.empty()) {
    refuse(instruction.line, fmt::format("{} {} is not supported", name, cli::printable(instruction.flags.front())));
  }
  if (!stages_.empty()) return;
  if (name != "ARG") refuse(instruction.line, "only ARG can stand before the first FROM");
  const std::size_t equals = instruction.rest.find('=');
  if (equals == std::string::npos) return;
  std::string value = instruction.rest.substr(equals + 1);
  const bool quoted =
      value.size() > 1 && value.front() == value.back() && (value.front() == '"' || value.front() == '\'');
  arguments_[instruction.rest.substr(0, equals)] = quoted ? value.substr(1, value.size() - 2) : value;
}

void Dockerfile::read_from(Instruction& instruction) {
  if (!instruction.flags.empty()) refuse(instruction.line, "FROM --platform is not supported");
  const std::vector<std::string> words = words_of(instruction.rest);
  const bool named = words.size() == 3 && upper(words[1]) == "AS";
  if (words.size() != 1 && !named) refuse(instruction.line, "FROM takes an image, or an image AS a name");
  const std::string image = expanded(instruction, words.front());
  if (named && !is_stage_name(words[2])) {
    refuse(instruction.line, fmt::format("'{}' is not the name of a stage", cli::printable(words[2])));
  }
  const bool is_own = image == "scratch" || is_stage(image);
  if (!is_own) add_image(instruction, image);
  const std::string base = is_own ? lower(image) : image;
  instruction.rest = named ? fmt::format("{} AS {}", base, lower(words[2])) : base;
  stages_.push_back(named ? lower(words[2]) : "");
}

void Dockerfile::read_copy(Instruction& instruction) {
  if (stages_.empty()) refuse(instruction.line, "only ARG can stand before the first FROM");
  bool of_context = true;
  for (std::string& flag : instruction.flags) {
    constexpr string_view kFrom = "--from=";
    if (flag.starts_with("--chown=") || flag.starts_with("--chmod=")) continue;
    if (!flag.starts_with(kFrom) || instruction.name != "COPY" || !of_context) {
      refuse(instruction.line, fmt::format("{} {} is not supported", instruction.name, cli::printable(flag)));
    }
    of_context = false;
    const std::string from = expanded(instruction, flag.substr(kFrom.size()));
    const bool is_number = !from.empty() && from.find_first_not_of("0123456789") == std::string::npos;
    flag = std::string(kFrom) + lower(from);
    if (is_number && from.size() < 9 && std::stoul(from) + 1 < stages_.size()) continue;
    if (is_number) refuse(instruction.line, fmt::format("there is no stage {} before it", from.substr(0, 20)));
    if (is_stage(from)) continue;
    add_image(instruction, from);
  }
  if (!of_context) return;
  std::vector<std::string> words = words_of(instruction.rest);
  if (instruction.rest.starts_with('[')) {
    const auto list = nlohmann::json::parse(instruction.rest, nullptr, false);
    words.clear();
    if (list.is_array()) {
      for (const auto& word : list) words.push_back(word.is_string() ? word.get<std::string>() : "");
    }
  }
  if (words.size() < 2) refuse(instruction.line, fmt::format("{} takes a source and a target", instruction.name));
  words.pop_back();
  for (const std::string& word : words) {
    if (instruction.name == "ADD" && !is_plain_source(word)) {
      refuse(instruction.line, fmt::format("ADD {} is not supported", cli::printable(word)));
    }
    add_source(word);
  }
}

void Dockerfile::add_image(Instruction& instruction, const std::string& image) {
  const bool fits = !image.empty() && std::ranges::all_of(image, [](char c) {
    return is_in_name(c) || string_view("./:@-").find(c) != string_view::npos;
  });
  if (!fits || image.starts_with('-')) {
    refuse(instruction.line, fmt::format("'{}' is not the name of an image", cli::printable(image)));
  }
  instruction.image = image;
  if (std::ranges::find(images_, image) == images_.end()) images_.push_back(image);
}

void Dockerfile::add_source(const std::string& source) {
  if (!sources_ || source.find("://") != std::string::npos) return;
  const bool literal = source.find_first_of("*?[$\\\"'") == std::string::npos && !source.starts_with("git@");
  std::string path = std::filesystem::path("/" + source).lexically_normal().relative_path().string();
  while (path.ends_with('/')) path.pop_back();
  if (!literal || path.empty()) {
    sources_.reset();
  } else if (std::ranges::find(*sources_, path) == sources_->end()) {
    sources_->push_back(path);
  }
}

bool Dockerfile::is_stage(const std::string& name) const {
  return !name.empty() && std::ranges::find(stages_, lower(name)) != stages_.end();
}

std::string Dockerfile::expanded(const Instruction& instruction, string_view text) const {
  std::string result;
  while (!text.empty()) {
    if (text.front() != '$') {
      result += text.front();
      text.remove_prefix(1);
      continue;
    }
    const bool braced = text.starts_with("${");
    const string_view after = text.substr(braced ? 2 : 1);
    const std::size_t length = std::find_if_not(after.begin(), after.end(), is_in_name) - after.begin();
    const auto known = arguments_.find(std::string(after.substr(0, length)));
    const bool closed = !braced || after.substr(length).starts_with('}');
    if (known == arguments_.end() || !closed) {
      refuse(instruction.line,
             fmt::format("'{}' has no value; ARG NAME=VALUE before the first FROM gives it one", cli::printable(text)));
    }
    result += known->second;
    text = after.substr(length + (braced ? 1 : 0));
  }
  return result;
}

std::string Dockerfile::text(const std::map<std::string, std::string>& ids, const std::string& begin) const {
  std::string result;
  for (const Instruction& instruction : instructions_) {
    std::string line = instruction.name;
    const auto id = ids.find(instruction.image);
    for (const std::string& flag : instruction.flags) {
      const bool from_image = !instruction.image.empty() && flag.starts_with("--from=") && id != ids.end();
      line += " " + (from_image ? "--from=" + id->second : flag);
    }
    std::string rest = instruction.rest;
    if (instruction.name == "FROM" && !instruction.image.empty() && id != ids.end()) {
      rest = id->second + rest.substr(instruction.image.size());
    }
    result += fmt::format("{} {}\n", line, rest);
    if (instruction.name == "FROM") result += begin;
  }
  return result;
}

}  // namespace gyre::jobs::containers
