#include "apps/gyre/job_validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/gyre/job_file.h"
#include "gyre/base/error.h"
#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/write.h"

namespace gyre::app {

namespace {

constexpr int kUnreadableExitCode = 2;

using jobs::spec::JobSpec;
using jobs::spec::Parsed;
using jobs::spec::Problem;
using jobs::spec::Severity;

constexpr char kExplanation[] = R"(
FILE is a job.json of Batch AI, version 2017-09-01-preview, 2018-03-01 or 2018-05-01, as JSON or YAML; `-` is stdin.
Nothing is started, and no path in the file is opened. All errors are reported at once, on stderr.

Exit code: 0 the file is valid, possibly with warnings · 1 it is not valid · 2 it cannot be read.

Examples:
  gyre job validate job.json
  gyre job validate --strict job.json       (warnings are errors)
  gyre job validate -o json job.yaml        (problems, and the job as the service understands it)

All properties: docs/guide/from_batch_ai.md)";

std::string counted(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::size_t count_of(const Parsed<JobSpec>& parsed, Severity severity) {
  return static_cast<std::size_t>(std::ranges::count(parsed.problems, severity, &Problem::severity));
}

void print_text(const Parsed<JobSpec>& parsed, const std::string& file) {
  for (const Problem& problem : parsed.problems) fmt::print(stderr, "{}\n", describe(problem, file));
  const std::size_t warnings = count_of(parsed, Severity::kWarning);
  const std::string also = warnings == 0 ? "" : fmt::format(", {}", counted(warnings, "warning"));
  if (!parsed.spec) {
    fmt::print("{} is not a valid job: {}{}\n", file, counted(count_of(parsed, Severity::kError), "error"), also);
    return;
  }
  const JobSpec& job = *parsed.spec;
  fmt::print("{} is a valid job ({}, {}, version {}{})\n", file, tool_type(job.toolkit),
             counted(static_cast<std::size_t>(job.node_count), "node"), version_name(parsed.version), also);
  if (!job.container_settings) return;
  fmt::print(stderr,
             "{}: note: the container of containerSettings ({}) is started by podman or docker on the nodes of a "
             "cluster, where "
             "Gyre is root; `gyre job run` runs the job on the host, as do clusters made with --containers-on-host\n",
             file, words_of_image(*job.container_settings));
}

void print_json(const Parsed<JobSpec>& parsed, const std::string& file) {
  nlohmann::json answer = {{"file", file},
                           {"valid", parsed.spec.has_value()},
                           {"version", version_name(parsed.version)},
                           {"problems", nlohmann::json::array()},
                           {"properties", parsed.spec ? to_json(*parsed.spec) : nlohmann::json()}};
  for (const Problem& problem : parsed.problems) {
    answer["problems"].push_back({{"severity", problem.severity == Severity::kError ? "error" : "warning"},
                                  {"line", problem.line > 0 ? nlohmann::json(problem.line) : nlohmann::json()},
                                  {"pointer", problem.pointer},
                                  {"message", problem.message}});
  }
  fmt::print("{}\n", answer.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

JobValidate::JobValidate(CLI::App& group) : verb_(group.add_subcommand("validate", "Report the errors of a job file")) {
  verb_->add_option("FILE", file_, "job.json, or a file of YAML; - is stdin")->required();
  verb_->add_flag("--strict", strict_, "Treat warnings as errors");
  verb_->add_option("-o,--output", output_, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("FORM")
      ->capture_default_str();
  verb_->footer(kExplanation);
}

int JobValidate::run(const std::vector<std::string>& environment) const {
  jobs::spec::ParseOptions options = spec_file_options(file_, environment);
  options.strict = strict_;
  std::string text;
  try {
    text = read_spec_file(file_);
  } catch (const Error& error) {
    fmt::print(stderr, "gyre job validate: {}\n", error.what());
    return kUnreadableExitCode;
  }
  const Parsed<JobSpec> parsed = jobs::spec::parse_job(text, options);
  const std::string name = spec_file_name(file_);
  output_ == "json" ? print_json(parsed, name) : print_text(parsed, name);
  return parsed.spec ? 0 : 1;
}

}  // namespace gyre::app
