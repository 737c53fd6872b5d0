#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gyre::app {

/// A word of the command line with verbs behind it: `gyre cluster create`.
class VerbGroup {
 public:
  /// Gets the environment as NAME=VALUE; returns the exit code. UsageError, gyre::Error.
  using Run = std::function<int(const std::vector<std::string>& environment)>;

  VerbGroup(CLI::App& app, const std::string& name, const std::string& description, const std::string& examples);

  CLI::App& app() { return *group_; }
  std::string name() const { return group_->get_name(); }
  /// `verb` was added to app().
  void add(CLI::App* verb, Run run);

  /// Whether `gyre NAME WORD` is one of them.
  bool has_verb(const std::string& word) const;

  /// After the options were parsed: runs the verb that was given.
  int run(const std::vector<std::string>& environment) const;

 private:
  std::vector<std::string> names() const;

  CLI::App* group_;
  std::vector<std::pair<const CLI::App*, Run>> verbs_;
};

}  // namespace gyre::app
