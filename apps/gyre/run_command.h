#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace gyre::app {

/// The person mistyped; what() is what to tell them.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The verb `gyre run`.
class RunCommand {
 public:
  explicit RunCommand(CLI::App& app);

  /// Divides what follows the verb into the options of `gyre run` (returned) and the command to run (kept): the
  /// command starts after "--", or at the first word that is neither an option nor an option's value. UsageError for
  /// an option that does not exist.
  std::vector<std::string> take_command(const std::vector<std::string>& arguments);

  /// After the options were parsed. Returns the exit code. UsageError, gyre::Error.
  int run(const std::vector<std::string>& environment) const;

 private:
  CLI::App* verb_;
  std::vector<std::string> command_;
  std::string ranks_ = "1";
  std::string grace_seconds_ = "5";
  std::string timeline_;
  std::string log_dir_;
  std::vector<std::string> variables_;
  int verbosity_ = 0;
};

}  // namespace gyre::app
