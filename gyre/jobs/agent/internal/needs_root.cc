#include "gyre/jobs/agent/internal/needs_root.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace gyre::jobs::agent::internal {

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

/// The words of each simple command. Quotes hide nothing: in `bash -c 'a && b'`, b is a command too.
std::vector<Words> commands_of(std::string_view text) {
  std::vector<Words> commands(1);
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) commands.back().push_back(std::exchange(word, {}));
  };
  const auto end_command = [&] {
    end_word();
    if (!commands.back().empty()) commands.emplace_back();
  };
  bool in_comment = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') in_comment = false;
    if (in_comment) continue;
    if (c == '\\' && i + 1 < text.size() && text[i + 1] == '\n') {
      ++i;
      end_word();
    } else if (c == '#' && word.empty()) {
      in_comment = true;
    } else if (std::string_view(";&|\n()`").find(c) != std::string_view::npos) {
      end_command();
    } else if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
    } else if (c != '"' && c != '\'') {
      word += c;
    }
  }
  end_command();
  return commands;
}

/// `-c`, `-lc`: a shell's line follows.
bool announces_line(std::string_view option) {
  return option.size() > 1 && option[0] == '-' && option[1] != '-' && option.ends_with('c');
}

/// Without what may stand before a command: variables, `if`, `env`, and a shell with its line (`bash -c`).
Words without_beginning(const Words& words) {
  std::size_t first = 0;
  while (first < words.size()) {
    if (is_assignment(words[first]) || is_one_of(words[first], kBefore)) {
      ++first;
      continue;
    }
    std::size_t option = first + 1;
    if (!is_one_of(last_part(words[first]), kShells)) break;
    while (option < words.size() && words[option].starts_with('-') && !announces_line(words[option])) ++option;
    if (option == words.size() || !announces_line(words[option])) break;
    first = option + 1;
  }
  return {words.begin() + static_cast<std::ptrdiff_t>(first), words.end()};
}

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
  for (const Words& words : commands_of(shell_text)) {
    const Words command = without_beginning(words);
    if (!command.empty() && is_for_root(command)) return std::string(last_part(command.front()));
  }
  return std::nullopt;
}

std::vector<std::string> scripts_of(std::string_view shell_line) {
  std::vector<std::string> scripts;
  for (const Words& words : commands_of(shell_line)) {
    const Words command = without_beginning(words);
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

}  // namespace gyre::jobs::agent::internal
