#include "apps/gyre/job_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string_view>

#include "apps/gyre/run_command.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/spec/file_pattern.h"
#include "gyre/jobs/spec/requirements.h"

namespace gyre::app {

namespace {

std::optional<std::string> variable(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    const std::string_view text = entry;
    if (text.starts_with(name) && text.substr(name.size()).starts_with('=') && text.size() > name.size() + 1)
      return std::string(text.substr(name.size() + 1));
  }
  return std::nullopt;
}

}  // namespace

std::string read_spec_file(const std::string& file) {
  const std::string name = spec_file_name(file);
  const UniqueFd opened(file == "-" ? ::dup(STDIN_FILENO) : ::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) throw system_error(fmt::format("cannot open {}", name), errno);
  std::string text;
  std::string buffer(std::size_t{64} << 10, '\0');
  while (text.size() <= jobs::spec::kMostFileBytes) {  // A longer one is refused by the parser.
    const ssize_t count = ::read(opened.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(fmt::format("cannot read {}", name), errno);
    if (count == 0) break;
    text.append(buffer, 0, static_cast<std::size_t>(count));
  }
  return text;
}

jobs::spec::ParseOptions spec_file_options(const std::string& file, const std::vector<std::string>& environment) {
  jobs::spec::ParseOptions options;
  if (file.ends_with(".yaml") || file.ends_with(".yml")) options.format = jobs::spec::Format::kYaml;
  options.storage_account = variable(environment, "AZURE_BATCHAI_STORAGE_ACCOUNT");
  options.storage_key = variable(environment, "AZURE_BATCHAI_STORAGE_KEY");
  return options;
}

std::string spec_file_name(const std::string& file) { return file == "-" ? "stdin" : file; }

jobs::spec::PythonRequirements read_requirements(const std::string& file, const std::string& option) {
  const std::string text(as_text(read_file(file, jobs::spec::kMostRequirementsBytes)));
  if (const auto refusal = jobs::spec::refusal_of_requirements(text)) {
    throw UsageError(fmt::format("{} {}: {}", option, file, cli::printable(*refusal)));
  }
  if (text.empty()) throw UsageError(fmt::format("{} {}: the file is empty", option, file));
  return {.file = {}, .lines = jobs::spec::requirement_lines(text)};
}

void add_output_option(CLI::App& verb, std::vector<std::string>& patterns) {
  verb.add_option("--output", patterns,
                  "Keep the files that the job writes into its work folder and PATTERN names ('*.pt', results, "
                  "'runs/**/*.csv'), as output directory 'work'; repeatable")
      ->type_name("PATTERN")
      ->allow_extra_args(false)
      ->check([](const std::string& pattern) -> std::string {
        // What --output means in other verbs.
        if (pattern != "json" && pattern != "yaml" && pattern != "table") {
          return jobs::spec::FilePattern::refusal_of(pattern);
        }
        return fmt::format("names files to keep, here; `-o {0}` is the form of what is printed, './{0}' a file",
                           pattern);
      });
}

void add_outputs(const std::vector<std::string>& patterns, jobs::spec::JobSpec& job) {
  job.output_files.insert(job.output_files.end(), patterns.begin(), patterns.end());
  if (!kept_files_are_ambiguous(job)) return;
  throw UsageError(
      fmt::format("--output keeps files as output directory '{0}', but the job's outputDirectories have "
                  "that id too; choose another id there",
                  jobs::spec::kKeptFiles));
}

}  // namespace gyre::app
