#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "gyre/jobs/spec/duration.h"
#include "gyre/jobs/spec/file_pattern.h"
#include "gyre/jobs/spec/internal/file_reader.h"
#include "gyre/jobs/spec/internal/object_reader.h"
#include "gyre/jobs/spec/internal/references.h"
#include "gyre/jobs/spec/internal/toolkit_readers.h"
#include "gyre/jobs/spec/internal/value_readers.h"
#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/requirements.h"
#include "gyre/jobs/spec/timelines.h"

namespace gyre::jobs::spec {

namespace {

constexpr Words<SchedulingPriority, 3> kPriorities = {
    {{"low", SchedulingPriority::kLow}, {"normal", SchedulingPriority::kNormal}, {"high", SchedulingPriority::kHigh}}};

constexpr int kMostGpus = 1'024;
constexpr int kMostCpus = 4'096;
constexpr double kLeastMemoryBytes = 16.0 * (1 << 20);  // Gyre's own processes need some of it, in the job's limit too.
constexpr double kMostMemoryBytes = 0x1p50;

/// `schedulingPriority`, or the number of earlier versions.
SchedulingPriority read_priority(ObjectReader& properties) {
  constexpr int kMostPriority = 1000;
  properties.came_with(ApiVersion::k2018_05_01, "schedulingPriority");
  properties.accept_until(ApiVersion::k2018_03_01, "priority", "schedulingPriority replaced it");
  const std::optional<int> number = properties.integer("priority", -kMostPriority, kMostPriority);
  const auto word = properties.choice("schedulingPriority", kPriorities);
  if (word) return *word;
  if (!number || *number == 0) return SchedulingPriority::kNormal;
  return *number < 0 ? SchedulingPriority::kLow : SchedulingPriority::kHigh;
}

/// The ids of inputs or of outputs, which must differ and become parts of names of variables.
class DirectoryIds {
 public:
  std::string read(ObjectReader& directory) {
    std::string id = directory.required_text("id");
    if (id.empty()) return id;
    const auto [earlier, is_new] = lines_.emplace(id, directory.place_of("id").line);
    if (!is_new) directory.error("id", fmt::format("is the id of line {} too", earlier->second));
    if (id.find_first_of("=/ \t\r\n") != std::string::npos) {
      directory.error("id", "cannot be part of a variable's name: letters, digits and _ can");
    } else if (id.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") !=
               std::string::npos) {
      directory.warning("id", "makes a variable that a shell cannot expand: letters, digits and _ can be");
    }
    return id;
  }

 private:
  std::map<std::string, int> lines_;
};

/// A path that must be absolute once its variables are expanded.
std::string read_path(ObjectReader& owner, std::string_view name) {
  std::string path = owner.required_text(name);
  if (!path.empty() && path.front() != '/' && path.front() != '$')
    owner.error(name, "must be an absolute path, or begin with a variable such as $AZ_BATCHAI_MOUNT_ROOT");
  return path;
}

std::vector<InputDirectory> read_inputs(ObjectReader& properties) {
  std::vector<InputDirectory> inputs;
  DirectoryIds ids;
  for (ObjectReader& reader : properties.objects("inputDirectories")) {
    InputDirectory input;
    input.id = ids.read(reader);
    input.path = read_path(reader, "path");
    reader.finish();
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::vector<OutputDirectory> read_outputs(ObjectReader& properties) {
  constexpr std::string_view kSuffix = "pathSuffix";
  std::vector<OutputDirectory> outputs;
  DirectoryIds ids;
  for (ObjectReader& reader : properties.objects("outputDirectories")) {
    OutputDirectory output;
    output.id = ids.read(reader);
    if (same_without_case(output.id, "stdouterr")) reader.error("id", "is the name of the job's logs; choose another");
    output.path_prefix = read_path(reader, "pathPrefix");
    output.path_suffix = relative_path(reader, kSuffix, reader.text(kSuffix).value_or(""));
    reader.accept_until(ApiVersion::k2018_03_01, "type", "it is ignored");
    reader.accept_until(ApiVersion::k2018_03_01, "createNew", "the directory is always created");
    reader.finish();
    outputs.push_back(std::move(output));
  }
  return outputs;
}

/// Our own, for all toolkits and versions.
void read_output_files(ObjectReader& properties, JobSpec& job) {
  constexpr std::string_view kName = "outputFiles";
  job.output_files = properties.texts(kName);
  for (const std::string& pattern : job.output_files) {
    const std::string refusal = FilePattern::refusal_of(pattern);
    if (!refusal.empty()) properties.error(kName, fmt::format("has a pattern that cannot be used: {}", refusal));
  }
  if (kept_files_are_ambiguous(job)) {
    properties.error(kName, fmt::format("are kept as output directory '{}', but outputDirectories have that id too; "
                                        "choose another id there",
                                        kKeptFiles));
  }
}

/// "16gb", as docker takes it.
bool is_docker_size(std::string_view size) {
  const std::size_t digits = std::min(size.find_first_not_of("0123456789"), size.size());
  if (digits == 0) return false;
  const std::string_view unit = size.substr(digits);
  for (const std::string_view known : {"", "b", "k", "kb", "m", "mb", "g", "gb"}) {
    if (same_without_case(unit, known)) return true;
  }
  return false;
}

/// Of what is_docker_size() accepts.
double bytes_of(const std::string& size) {
  const std::size_t digits = std::min(size.find_first_not_of("0123456789"), size.size());
  const char unit = digits == size.size() ? 'b' : static_cast<char>(std::tolower(size[digits]));
  return std::strtod(size.substr(0, digits).c_str(), nullptr) *
         std::pow(1'024.0, static_cast<double>(std::string_view("bkmg").find(unit)));
}

std::optional<std::string> read_size(ObjectReader& owner, std::string_view name) {
  auto size = owner.text_or_nothing(name);
  if (size && !is_docker_size(*size)) owner.error(name, "must be a size as docker takes it: 64m, 16gb");
  return size;
}

bool read_flag(ObjectReader& owner, std::string_view name) {
  const Value* value = owner.value(name);
  if (value == nullptr || value->kind == Value::Kind::kNull) return false;
  if (value->kind != Value::Kind::kBoolean) owner.error(name, "must be true or false");
  return value->text == "true";
}

/// What the job has of each node; our own, for all toolkits and versions.
void read_resources(ObjectReader& properties, JobSpec& job) {
  constexpr std::string_view kMemory = "memoryPerNode";
  job.gpus_per_node = properties.integer("gpusPerNode", 0, kMostGpus);
  job.cpus_per_node = properties.integer("cpusPerNode", 1, kMostCpus);
  job.memory_per_node = read_size(properties, kMemory);
  if (!job.memory_per_node || !is_docker_size(*job.memory_per_node)) return;
  const double bytes = bytes_of(*job.memory_per_node);
  if (bytes < kLeastMemoryBytes || bytes > kMostMemoryBytes) {
    properties.error(kMemory, fmt::format("is '{}'; it can be from 16m to 1048576g", *job.memory_per_node));
  }
}

std::optional<RegistryCredentials> read_registry_credentials(ObjectReader& registry) {
  auto reader = registry.object("credentials");
  if (!reader) return std::nullopt;
  RegistryCredentials credentials;
  credentials.username = reader->required_text("username");
  credentials.password = read_secret(*reader, "password", true);
  reader->finish();
  return credentials;
}

/// A file of the job's code, or the lines of one.
std::optional<PythonRequirements> read_requirements(ObjectReader& owner) {
  constexpr std::string_view kName = "requirements";
  const Value* value = owner.value(kName);
  if (value == nullptr || value->kind == Value::Kind::kNull) return std::nullopt;
  PythonRequirements requirements;
  if (value->kind != Value::Kind::kList) {
    const std::string file = owner.required_text(kName);
    if (file.starts_with('/'))
      owner.error(kName, "names a file of the job's code (--code), and must be a path in there");
    requirements.file = relative_path(owner, kName, file);
    return requirements;
  }
  requirements.lines = owner.texts(kName);
  const std::string text = requirements_text(requirements.lines);
  if (requirements.lines.empty()) owner.error(kName, "names nothing");
  const auto has_end = [](const std::string& line) { return line.find_first_of("\n\r") != std::string::npos; };
  if (std::ranges::any_of(requirements.lines, has_end)) owner.error(kName, "has an entry of several lines");
  if (text.size() > kMostRequirementsBytes) {
    owner.error(kName, fmt::format("has {} bytes; {} are the limit", text.size(), kMostRequirementsBytes));
  }
  if (const auto refusal = refusal_of_requirements(text)) owner.error(kName, "cannot be used: " + *refusal);
  return requirements;
}

/// Our own.
std::optional<ImageBuild> read_build(ObjectReader& container) {
  constexpr std::string_view kDockerfile = "dockerfile";
  auto reader = container.object("build");
  if (!reader) return std::nullopt;
  ImageBuild build;
  build.requirements = read_requirements(*reader);
  if (build.requirements) {
    if (reader->text_or_nothing(kDockerfile)) reader->error(kDockerfile, "and requirements exclude each other");
    if (!container.has("imageSourceRegistry"))
      container.missing("imageSourceRegistry", "is missing: it names the image that build installs requirements in");
  } else if (const std::string file = reader->required_text(kDockerfile); !file.empty()) {
    if (file.starts_with('/'))
      reader->error(kDockerfile, "names a file of the job's code (--code), and must be a path in there");
    build.dockerfile = relative_path(*reader, kDockerfile, file);
  }
  reader->finish();
  return build;
}

std::optional<ContainerSettings> read_container(ObjectReader& properties) {
  auto reader = properties.object("containerSettings");
  if (!reader) return std::nullopt;
  ContainerSettings container;
  container.build = read_build(*reader);
  constexpr std::string_view kRegistry = "imageSourceRegistry";
  if (auto registry = container.build ? reader->object(kRegistry) : reader->required_object(kRegistry)) {
    container.image = registry->required_text("image");
    container.server_url = registry->text_or_nothing("serverUrl");
    container.credentials = read_registry_credentials(*registry);
    container.digest = registry->text("digest").value_or("");
    registry->finish();
  }
  reader->came_with(ApiVersion::k2018_05_01, "shmSize");
  container.shm_size = read_size(*reader, "shmSize");
  container.read_bashrc = read_flag(*reader, "readBashrc");
  reader->finish();
  return container;
}

std::chrono::seconds read_max_wall_clock_time(ObjectReader& properties) {
  constexpr std::string_view kName = "maxWallClockTime";
  auto constraints = properties.object("constraints");
  if (!constraints) return kDefaultMaxWallClockTime;
  const std::optional<std::string> text = constraints->text_or_nothing(kName);
  const auto duration = text ? parse_duration(*text) : kDefaultMaxWallClockTime;
  if (!duration || duration->count() == 0)
    constraints->error(kName, "must be a duration above 0, such as P7D, PT1H30M or 7.00:00:00");
  if (constraints->integer("maxRetryCount", 0, 1000).value_or(0) > 0)
    constraints->warning("maxRetryCount", "has no effect: a job that fails is not started again");
  constraints->finish();
  return duration.value_or(kDefaultMaxWallClockTime);
}

std::optional<std::string> read_preparation(ObjectReader& properties) {
  auto reader = properties.object("jobPreparation");
  if (!reader) return std::nullopt;
  std::string line = reader->required_text("commandLine");
  reader->finish();
  return line;
}

/// What the service adds to the jobs that it lists, and what earlier clients sent.
void accept_the_rest(ObjectReader& properties) {
  properties.accept({"toolType", "jobOutputDirectoryPathSegment", "creationTime", "provisioningState",
                     "provisioningStateTransitionTime", "executionState", "executionStateTransitionTime",
                     "executionInfo", "description"});
}

JobSpec read_job(ObjectReader& properties) {
  constexpr std::string_view kLogs = "stdOutErrPathPrefix";
  JobSpec job;
  job.cluster_id = read_resource_id(properties, "cluster", false);
  job.experiment_name = properties.text_or_nothing("experimentName");
  properties.accept_until(ApiVersion::k2018_03_01, "experimentName", "the experiment is part of the job's address");
  properties.accept_until(ApiVersion::k2018_03_01, "location", "it is ignored");
  job.node_count = properties.required_integer("nodeCount", 1, kMostNodes);
  job.scheduling_priority = read_priority(properties);
  if (auto toolkit = read_toolkit(properties, job.node_count)) job.toolkit = std::move(*toolkit);
  const bool ours = std::holds_alternative<GyreSettings>(job.toolkit);
  job.std_out_err_path_prefix =
      ours && !properties.has(kLogs) ? std::string(kLogsOnTheNode) : read_path(properties, kLogs);
  job.input_directories = read_inputs(properties);
  job.output_directories = read_outputs(properties);
  read_output_files(properties, job);
  read_resources(properties, job);
  properties.came_with(ApiVersion::k2018_03_01, "mountVolumes");
  job.mount_volumes = read_mount_volumes(properties);
  read_variables(properties, job.environment_variables, job.secrets);
  if (read_flag(properties, "timeline")) ask_for_timelines(job);
  job.container_settings = read_container(properties);
  job.requirements = read_requirements(properties);
  if (job.requirements && job.container_settings) {
    properties.error("requirements",
                     "is for jobs without containerSettings; there it belongs in containerSettings.build");
  }
  job.job_preparation_command_line = read_preparation(properties);
  job.max_wall_clock_time = read_max_wall_clock_time(properties);
  accept_the_rest(properties);
  check_references(properties, job);
  return job;
}

}  // namespace

Parsed<JobSpec> parse_job(std::string_view text, const ParseOptions& options) {
  std::optional<JobSpec> spec;
  FileReading file = read_file(text, options, "job", [&](ObjectReader& properties) { spec = read_job(properties); });
  return result_of(std::move(file), std::move(spec));
}

}  // namespace gyre::jobs::spec
