// The command line of Gyre: parses, wires, runs.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/gyre/run_command.h"
#include "apps/gyre/suggest.h"
#include "gyre/base/error.h"

extern char** environ;

namespace {

constexpr int kUsageExitCode = 2;

/// A descriptor that we open must never become somebody's stdin, stdout or stderr.
void ensure_standard_descriptors() {
  for (;;) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    if (fd > STDERR_FILENO) {
      ::close(fd);
      return;
    }
  }
}

std::vector<std::string> environment_from_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

int usage_failure(const std::string& where, const std::string& message) {
  fmt::print(stderr, "{}: {}\nSee `{} --help`.\n", where, message, where);
  return kUsageExitCode;
}

int parse_and_run(std::vector<std::string> arguments) {
  CLI::App app("Gyre trains deep-learning models on many processes, from one command.", "gyre");
  app.set_version_flag("--version", "gyre " GYRE_VERSION);
  app.footer("\nExamples:\n  gyre run -n 4 -- python train.py\n  gyre run --help");
  gyre::app::RunCommand run(app);

  if (arguments.empty()) arguments = {"--help"};
  const std::string first = arguments.front();
  if (first != "run" && first != "--help" && first != "-h" && first != "--version") {
    const auto meant = gyre::app::nearest(first, {"run", "--help", "--version"});
    return usage_failure("gyre", fmt::format("there is no {} '{}'{}", first.starts_with('-') ? "option" : "verb", first,
                                             meant ? fmt::format("; did you mean '{}'?", *meant) : ""));
  }
  const std::string where = first == "run" ? "gyre run" : "gyre";
  try {
    if (first == "run") {
      arguments.erase(arguments.begin());
      arguments = run.take_command(arguments);
      arguments.insert(arguments.begin(), first);
    }
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back.
    app.parse(arguments);
    return run.run(environment_from_environment());
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return usage_failure(where, error.what());
  } catch (const gyre::app::UsageError& error) {
    return usage_failure(where, error.what());
  } catch (const gyre::Error& error) {
    if (error.code() == gyre::ErrorCode::kInvalidArgument) return usage_failure(where, error.what());
    fmt::print(stderr, "{}: {}\n", where, error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  ensure_standard_descriptors();
  try {
    return parse_and_run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "gyre: {}\n", error.what());
    return 1;
  }
}
