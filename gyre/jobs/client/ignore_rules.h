#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::jobs::client {

/// What a .gyreignore or .gitignore leaves out: a pattern each line, in the whole syntax of gitignore(5), read as git
/// reads it. It says so for paths below the file's own folder; what a folder is left out with is not looked at.
class IgnoreRules {
 public:
  explicit IgnoreRules(std::string_view text);

  /// Whether the last pattern that matches leaves `path` out, or takes it back ("!"); nothing where none matches.
  /// `path`: relative to the file's folder, with `/` between names.
  std::optional<bool> verdict(std::string_view path, bool is_folder) const;

 private:
  struct Rule {
    std::string pattern;
    std::size_t literal = 0;  ///< So many characters at its beginning stand for themselves.
    bool keeps = false;
    bool folders_only = false;
    bool name_only = false;  ///< Without a slash: matches names in whatever folder.
  };
  static bool matches(const Rule& rule, std::string_view path);

  std::vector<Rule> rules_;
};

}  // namespace gyre::jobs::client
