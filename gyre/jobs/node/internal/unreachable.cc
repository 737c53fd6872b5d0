#include "gyre/jobs/node/internal/unreachable.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <type_traits>
#include <variant>

#include "gyre/base/reach.h"

namespace gyre::jobs::node::internal {

namespace {

namespace fs = std::filesystem;

void add(std::vector<std::string>& paths, const spec::PythonScript& python) {
  paths.push_back(python.interpreter_path.value_or("python"));
  paths.push_back(python.script_file_path);
}
void add(std::vector<std::string>& paths, const spec::ConfigFile& file) { paths.push_back(file.path); }

/// Roughly as a shell would take them apart; what is not a path does no harm.
std::vector<std::string> words_of(const std::string& line) {
  std::string plain = line;
  for (char& c : plain) {
    if (std::string_view("\"';|&()<>=").find(c) != std::string_view::npos) c = ' ';
  }
  std::istringstream stream(plain);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// Where PATH has the program, whoever may use it.
std::optional<fs::path> in_path(const std::string& program, const Variables& variables) {
  const auto path = variables.find("PATH");
  if (path == variables.end()) return std::nullopt;
  std::istringstream folders(path->second);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code ignored;
    if (folder.starts_with('/') && fs::exists(fs::path(folder) / program, ignored)) return fs::path(folder) / program;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> program_paths(const spec::JobSpec& job) {
  std::vector<std::string> paths;
  std::visit(
      [&](const auto& settings) {
        if constexpr (requires { settings.python; }) {
          add(paths, settings.python);
        } else if constexpr (requires { settings.command_line; }) {
          paths.push_back(settings.command_line);
        } else if constexpr (std::is_same_v<std::decay_t<decltype(settings)>, spec::GyreSettings>) {
          paths = settings.program;
        } else {
          std::visit([&](const auto& program) { add(paths, program); }, settings.program);
        }
      },
      job.toolkit);
  return paths;
}

std::optional<std::string> unreachable(const std::vector<std::string>& lines, const Variables& variables,
                                       const JobUser& user) {
  constexpr const char* kWayOut = "put it where that user can reach it, or run jobs as another user (--job-user)";
  for (const std::string& line : lines) {
    for (const std::string& word : words_of(expand(line, variables).text)) {
      const auto obstacle = word.starts_with('/') ? obstacle_before(word, user.id) : std::nullopt;
      if (obstacle) return fmt::format("{}; {}", explain(*obstacle, word, user.name), kWayOut);
    }
  }
  return std::nullopt;
}

std::optional<std::string> passed_over(const std::string& line, const Variables& variables, const JobUser& user) {
  const std::vector<std::string> words = words_of(expand(line, variables).text);
  if (words.empty() || words.front().find('/') != std::string::npos) return std::nullopt;
  const auto program = in_path(words.front(), variables);
  const auto obstacle = program ? obstacle_before(*program, user.id) : std::nullopt;
  if (!obstacle) return std::nullopt;
  return fmt::format("the first '{}' on the PATH was passed over: {}", words.front(),
                     explain(*obstacle, *program, user.name));
}

}  // namespace gyre::jobs::node::internal
