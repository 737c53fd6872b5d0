#include "gyre/jobs/node/internal/needs_root.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace gyre::jobs::node::internal {

namespace {

using Words = std::vector<std::string>;

constexpr std::array<std::string_view, 14> kOfApt = {
    "update",       "install",      "reinstall", "remove", "purge",     "autoremove", "autopurge",
    "dist-upgrade", "full-upgrade", "upgrade",   "clean",  "autoclean", "build-dep",  "safe-upgrade"};
constexpr std::array<std::string_view, 12> kOfYum = {"install",     "reinstall", "localinstall", "groupinstall",
                                                     "remove",      "erase",     "update",       "upgrade",
                                                     "distro-sync", "makecache", "clean",        "builddep"};
constexpr std::array<std::string_view, 11> kOfZypper = {"install", "in",      "remove", "rm", "update", "up",
                                                        "dup",     "refresh", "ref",    "ar", "addrepo"};
constexpr std::array<std::string_view, 5> kOfApk = {"add", "del", "update", "upgrade", "fix"};
constexpr std::array<std::string_view, 2> kOfSnap = {"install", "remove"};
constexpr std::array<std::string_view, 8> kOfDpkg = {"-i", "--install",   "-r",      "--remove",
                                                     "-P", "--configure", "--purge", "--unpack"};
constexpr std::array<std::string_view, 9> kOfRpm = {"-i", "-ivh",      "-U",        "-Uvh",   "-F",
                                                    "-e", "--install", "--upgrade", "--erase"};
constexpr std::array<std::string_view, 5> kDryRuns = {"-s", "--simulate", "--dry-run", "--just-print", "--no-act"};

struct Manager {
  std::string_view name;
  std::span<const std::string_view> words;  ///< One of them makes it a call for root.
};
constexpr std::array<Manager, 11> kManagers = {{{"apt-get", kOfApt},
                                                {"apt", kOfApt},
                                                {"aptitude", kOfApt},
                                                {"yum", kOfYum},
                                                {"dnf", kOfYum},
                                                {"microdnf", kOfYum},
                                                {"zypper", kOfZypper},
                                                {"apk", kOfApk},
                                                {"snap", kOfSnap},
                                                {"dpkg", kOfDpkg},
                                                {"rpm", kOfRpm}}};
constexpr std::array<std::string_view, 2> kAlwaysForRoot = {"add-apt-repository", "apt-add-repository"};

/// Words after which another command begins.
constexpr std::array<std::string_view, 14> kBefore = {"if",   "then", "else", "elif", "while", "until",   "do",
                                                      "exec", "time", "env",  "!",    "{",     "command", "nohup"};
/// Words of commands that compare, and variables that say who runs them.
constexpr std::array<std::string_view, 4> kTests = {"[", "[[", "test", "case"};
constexpr std::array<std::string_view, 6> kUserNumbers = {"EUID", "$EUID", "${EUID}", "UID", "$UID", "${UID}"};
constexpr std::array<std::string_view, 4> kUserNames = {"$USER", "${USER}", "$LOGNAME", "${LOGNAME}"};
constexpr std::array<std::string_view, 5> kShells = {"bash", "sh", "dash", "zsh", "ksh"};

bool is_one_of(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_assignment(std::string_view word) {
  const std::size_t equals = word.find('=');
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return equals != 0 && equals != std::string_view::npos && std::ranges::all_of(word.substr(0, equals), in_name);
}

/// One simple command, and whether it begins a new list (after `;` or a line's end) or continues one (after `&&`, `|`).
struct Command {
  Words words;
  bool begins_list = true;
};

/// `<<EOF`, `<<-'EOF'`: behind the operator at `at`. Nothing for `<<<` and for what is no word.
std::string here_document_end(std::string_view text, std::size_t at) {
  if (at < text.size() && text[at] == '-') ++at;
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  std::string word;
  for (; at < text.size() && std::string_view(" \t\n;&|<>()").find(text[at]) == std::string_view::npos; ++at) {
    if (text[at] != '"' && text[at] != '\'' && text[at] != '\\') word += text[at];
  }
  return word;
}

/// Where the here-document that begins at `start` ends: behind the line that is `end`, or nothing without one.
std::optional<std::size_t> behind_here_document(std::string_view text, std::size_t start, std::string_view end) {
  while (start < text.size()) {
    const std::size_t line_end = std::min(text.find('\n', start), text.size());
    std::string_view line = text.substr(start, line_end - start);
    line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line == end) return line_end;
    start = line_end + 1;
  }
  return std::nullopt;
}

/// Divides text into simple commands. Quotes hide nothing: in `bash -c 'a && b'`, b is a command too. A here-document
/// hides its lines, unless a shell reads them.
class CommandReader {
 public:
  explicit CommandReader(std::string_view text) : text_(text) { commands_.emplace_back(); }

  std::vector<Command> read() {
    for (; at_ < text_.size(); ++at_) read_character();
    end_command(true);
    if (commands_.back().words.empty()) commands_.pop_back();
    return std::move(commands_);
  }

 private:
  void read_character() {
    const char c = text_[at_];
    const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (c == '\n') {
      in_comment_ = false;
      end_word();
      end_command(!continued_);
      skip_here_document();
    } else if (in_comment_) {
      return;
    } else if (c == '\\' && next == '\n') {
      ++at_;
      end_word();
    } else if (c == '#' && word_.empty()) {
      in_comment_ = true;
    } else if (c == '<' && next == '<') {
      read_here_operator();
    } else if (c == ';' || (c == '&' && next != '&')) {
      end_command(true);
    } else if (std::string_view("&|()`").find(c) != std::string_view::npos) {
      at_ += c == '&' || (c == '|' && next == '|') ? 1 : 0;
      end_command(false);
      continued_ = c == '&' || c == '|';
    } else if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
    } else if (c != '"' && c != '\'') {
      word_ += c;
    }
  }

  void read_here_operator() {
    end_word();
    at_ += 1;
    if (at_ + 1 < text_.size() && text_[at_ + 1] == '<') {
      at_ += 1;
      return;
    }
    const Words& words = commands_.back().words;
    const bool read_by_shell = !words.empty() && is_one_of(last_part(words.front()), kShells);
    if (!read_by_shell) here_end_ = here_document_end(text_, at_ + 1);
  }

  void skip_here_document() {
    if (here_end_.empty()) return;
    if (const auto behind = behind_here_document(text_, at_ + 1, here_end_)) at_ = *behind;
    here_end_.clear();
  }

  void end_word() {
    if (word_.empty()) return;
    commands_.back().words.push_back(std::exchange(word_, {}));
    continued_ = false;
  }

  void end_command(bool ends_list) {
    end_word();
    if (!commands_.back().words.empty()) commands_.emplace_back(Words{}, false);
    commands_.back().begins_list |= ends_list;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string word_;
  bool in_comment_ = false;
  bool continued_ = false;  ///< The list goes on in the next line, which follows `&&` or `|`.
  std::string here_end_;    ///< Of the here-document that begins in the next line.
  std::vector<Command> commands_;
};

/// `-c`, `-lc`: a shell's line follows.
bool announces_line(std::string_view option) {
  return option.size() > 1 && option[0] == '-' && option[1] != '-' && option.ends_with('c');
}

/// Where the line of a shell (`bash -c`) begins that is called at `at`; `at` for any other command.
std::size_t behind_shell(const Words& words, std::size_t at) {
  if (!is_one_of(last_part(words[at]), kShells)) return at;
  std::size_t option = at + 1;
  while (option < words.size() && words[option].starts_with('-') && !announces_line(words[option])) ++option;
  return option < words.size() && announces_line(words[option]) ? option + 1 : at;
}

/// Without what may stand before a command: variables, `if`, `env`, and a shell with its line (`bash -c`).
Words without_beginning(const Words& words) {
  std::size_t first = 0;
  while (first < words.size()) {
    const bool is_before = is_assignment(words[first]) || is_one_of(words[first], kBefore);
    const std::size_t next = is_before ? first + 1 : behind_shell(words, first);
    if (next == first) break;
    first = next;
  }
  return {words.begin() + static_cast<std::ptrdiff_t>(first), words.end()};
}

/// Follows which commands run, or do not, because somebody has asked whether this is root: `[ $(id -u) = 0 ] && …`,
/// `if [ $EUID -ne 0 ]; then … else … fi`, `case $(whoami) in …`.
class RootQuestions {
 public:
  /// Returns whether `command`, the next one, stands behind such a question.
  bool next(const Command& command) {
    if (command.begins_list) in_answered_list_ = false;
    const bool opens_case = read_keywords(command.words);
    if (asks(command.words)) {
      const bool for_block = opens_case || (!blocks_.empty() && blocks_.back().in_question);
      (for_block ? blocks_.back().answered : in_answered_list_) = true;
    }
    return in_answered_list_ || std::ranges::any_of(blocks_, &Block::answered);
  }

 private:
  struct Block {
    bool in_question = false;  ///< Between `if` and `then`, `case` and `in`.
    bool answered = false;
  };

  /// Those that stand before a command. Returns whether the last one is `case`.
  bool read_keywords(const Words& words) {
    for (std::size_t at = 0; at < words.size(); ++at) {
      at = behind_shell(words, at);
      if (at == words.size()) break;
      const std::string& word = words[at];
      if (word == "case") {
        blocks_.push_back({.in_question = std::ranges::find(words, "in") == words.end()});
        return true;
      }
      if (word == "if") blocks_.push_back({.in_question = true});
      if (word == "{") blocks_.push_back({.answered = in_answered_list_});
      if (!blocks_.empty()) read_keyword_of_block(word);
      if (!is_one_of(word, kBefore)) break;
    }
    return false;
  }

  void read_keyword_of_block(const std::string& word) {
    if (word == "then" || word == "in") blocks_.back().in_question = false;
    if (word == "elif") blocks_.back().in_question = true;
    if (word == "fi" || word == "esac" || word == "}") blocks_.pop_back();
  }

  static bool asks(const Words& words) {
    if (words.empty()) return false;
    const std::string& first = words.front();
    if (first == "whoami" || is_one_of(first, kUserNumbers)) return true;
    if (first == "id") return std::ranges::any_of(words, [](const auto& word) { return word.starts_with("-u"); });
    const auto is_test = [](const std::string& word) { return is_one_of(word, kTests); };
    const auto is_user = [](const std::string& word) {
      return is_one_of(word, kUserNumbers) || is_one_of(word, kUserNames);
    };
    return std::ranges::any_of(words, is_test) && std::ranges::any_of(words, is_user);
  }

  std::vector<Block> blocks_;
  bool in_answered_list_ = false;
};

bool is_for_root(const Words& command) {
  const std::string_view name = last_part(command.front());
  if (is_one_of(name, kAlwaysForRoot)) return true;
  const auto* manager = std::ranges::find(kManagers, name, &Manager::name);
  if (manager == kManagers.end()) return false;
  const std::span<const std::string> arguments = std::span(command).subspan(1);
  const auto is_dry_run = [](const std::string& word) { return is_one_of(word, kDryRuns); };
  const auto is_change = [&](const std::string& word) { return is_one_of(word, manager->words); };
  return std::ranges::any_of(arguments, is_change) && std::ranges::none_of(arguments, is_dry_run);
}

}  // namespace

std::optional<std::string> package_manager_for_root(std::string_view shell_text) {
  RootQuestions questions;
  for (const Command& next : CommandReader(shell_text).read()) {
    const bool is_conditional = questions.next(next);
    const Words command = without_beginning(next.words);
    if (!is_conditional && !command.empty() && is_for_root(command)) return std::string(last_part(command.front()));
  }
  return std::nullopt;
}

std::vector<std::string> scripts_of(std::string_view shell_line) {
  std::vector<std::string> scripts;
  for (const Command& next : CommandReader(shell_line).read()) {
    const Words command = without_beginning(next.words);
    if (command.empty()) continue;
    const std::string& program = command.front();
    const bool reads_script = is_one_of(last_part(program), kShells) || program == "." || program == "source";
    if (reads_script) {
      const auto script = std::find_if(command.begin() + 1, command.end(),
                                       [](const std::string& word) { return !word.starts_with('-'); });
      if (script != command.end()) scripts.push_back(*script);
    } else if (program.find('/') != std::string::npos) {
      scripts.push_back(program);
    }
  }
  return scripts;
}

}  // namespace gyre::jobs::node::internal
