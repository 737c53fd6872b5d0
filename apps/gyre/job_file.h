#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "gyre/jobs/spec/job_spec.h"
#include "gyre/jobs/spec/parse.h"

namespace gyre::app {

/// The text of a job or cluster file; "-" is stdin. gyre::Error names the file.
std::string read_spec_file(const std::string& file);

/// How the file is to be read: YAML where its name says so; the storage account of AZURE_BATCHAI_STORAGE_ACCOUNT and
/// AZURE_BATCHAI_STORAGE_KEY ("NAME=VALUE" in `environment`) in the places that are left open.
jobs::spec::ParseOptions spec_file_options(const std::string& file, const std::vector<std::string>& environment);

/// The file's name for messages.
std::string spec_file_name(const std::string& file);

/// What a pip requirements file says that `option` names. gyre::Error; UsageError where it is not for nodes.
jobs::spec::PythonRequirements read_requirements(const std::string& file, const std::string& option = "--requirements");

/// --output of the verbs that start a job, whose patterns add_outputs() gives to the job: UsageError where an output
/// directory of the job has their id.
void add_output_option(CLI::App& verb, std::vector<std::string>& patterns);
void add_outputs(const std::vector<std::string>& patterns, jobs::spec::JobSpec& job);

}  // namespace gyre::app
