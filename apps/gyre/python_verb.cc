#include "apps/gyre/python_verb.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "apps/gyre/run_command.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/base/process.h"

namespace gyre::app {

namespace {

/// Says in a person's words when this Python has no Gyre, or Gyre lacks something. %1: the module, %2: the verb.
constexpr const char* kStart = R"(
import sys
try:
    from {0} import main
except ModuleNotFoundError as error:
    sys.exit(f"gyre {1}: {{sys.executable}} has no module '{{error.name}}'; install the package gyre-train for it, or "
             "set GYRE_PYTHON to a Python that has it")
sys.exit(main(sys.argv[1:]))
)";

std::optional<std::string> search_path(const std::string& name) {
  try {
    return find_command(name, environment_variable("PATH").value_or(""));
  } catch (const SpawnError&) {
    return std::nullopt;
  }
}

/// Where it was called, links not followed: a checkout's .venv/bin has links to the build's programs beside its Python.
std::optional<std::filesystem::path> folder_of(const std::string& called_as) {
  const std::optional<std::string> found =
      called_as.find('/') != std::string::npos ? std::optional(called_as) : search_path(called_as);
  if (!found) return std::nullopt;
  return std::filesystem::path(*found).parent_path();
}

std::string find_python(const std::string& verb, const std::string& called_as) {
  if (const auto wanted = environment_variable("GYRE_PYTHON")) return *wanted;
  const auto folder = folder_of(called_as);
  if (folder && ::access((*folder / "python3").c_str(), X_OK) == 0) return *folder / "python3";
  if (const auto python = search_path("python3")) return *python;
  throw UsageError(fmt::format("`gyre {}` is written in Python, and there is no python3 {}nor in PATH; set GYRE_PYTHON",
                               verb, folder ? fmt::format("in {} ", folder->string()) : std::string()));
}

}  // namespace

void become_python_verb(const std::string& verb, const std::string& module, const std::vector<std::string>& arguments,
                        const std::string& called_as) {
  const std::string python = find_python(verb, called_as);
  const std::string start = fmt::format(kStart, module, verb);
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  // What this process becomes is told by its environment; nobody else lives in it.
  if (!self.empty()) ::setenv("GYRE_PROGRAM", self.c_str(), 1);
  // -P: the folder it is called in has no part in what it imports.
  std::vector<std::string> words = {python, "-P", "-c", start};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(python.c_str(), argv.data());
  throw UsageError(fmt::format("{} (from GYRE_PYTHON, or python3 found beside gyre or in PATH) cannot be run: {}",
                               python, std::strerror(errno)));
}

}  // namespace gyre::app
