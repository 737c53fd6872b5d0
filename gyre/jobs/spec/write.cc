#include "gyre/jobs/spec/write.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "gyre/jobs/spec/duration.h"

namespace gyre::jobs::spec {

namespace {

using Json = nlohmann::json;

void put(Json& object, const char* name, const std::optional<std::string>& text) {
  if (text) object[name] = *text;
}

void put(Json& object, const char* name, std::optional<int> number) {
  if (number) object[name] = *number;
}

void put_not_empty(Json& object, const char* name, const std::string& text) {
  if (!text.empty()) object[name] = text;
}

/// `name` and `nameSecretReference`; the former is null where secrets are left out.
void put_secret(Json& object, const std::string& name, const SecretValue& secret, Secrets secrets) {
  if (secret.reference) {
    object[name + "SecretReference"] = {{"sourceVault", {{"id", secret.reference->source_vault_id}}},
                                        {"secretUrl", secret.reference->secret_url}};
  }
  if (secret.text) object[name] = secrets == Secrets::kIncluded ? Json(*secret.text) : Json();
}

Json of_account_key(const SecretValue& key, Secrets secrets) {
  Json credentials = Json::object();
  put_secret(credentials, "accountKey", key, secrets);
  return credentials;
}

Json to_json(const std::vector<EnvironmentVariable>& variables) {
  Json list = Json::array();
  for (const EnvironmentVariable& variable : variables)
    list.push_back({{"name", variable.name}, {"value", variable.value}});
  return list;
}

Json to_json(const std::vector<SecretVariable>& variables, Secrets secrets) {
  Json list = Json::array();
  for (const SecretVariable& variable : variables) {
    Json& entry = list.emplace_back(Json{{"name", variable.name}});
    put_secret(entry, "value", variable.value, secrets);
  }
  return list;
}

Json to_json(const AzureFileShare& share, Secrets secrets) {
  return {{"accountName", share.account_name},
          {"azureFileUrl", share.url},
          {"relativeMountPath", share.relative_mount_path},
          {"credentials", of_account_key(share.account_key, secrets)},
          {"fileMode", share.file_mode},
          {"directoryMode", share.directory_mode}};
}

Json to_json(const AzureBlobFileSystem& blobs, Secrets secrets) {
  Json json = {{"accountName", blobs.account_name},
               {"containerName", blobs.container_name},
               {"relativeMountPath", blobs.relative_mount_path},
               {"credentials", of_account_key(blobs.account_key, secrets)}};
  put(json, "mountOptions", blobs.mount_options);
  return json;
}

Json to_json(const FileServerMount& server, Secrets) {
  Json json = {{"fileServer", {{"id", server.file_server_id}}}, {"relativeMountPath", server.relative_mount_path}};
  put(json, "sourceDirectory", server.source_directory);
  put(json, "mountOptions", server.mount_options);
  return json;
}

Json to_json(const UnmanagedFileSystem& system, Secrets) {
  return {{"mountCommand", system.mount_command}, {"relativeMountPath", system.relative_mount_path}};
}

template <typename Mount>
void put_mounts(Json& volumes, const char* name, const std::vector<Mount>& mounts, Secrets secrets) {
  for (const Mount& mount : mounts) volumes[name].push_back(to_json(mount, secrets));
}

void put_mount_volumes(Json& owner, const MountVolumes& volumes, Secrets secrets) {
  if (volumes.empty()) return;
  Json& json = owner["mountVolumes"];
  put_mounts(json, "azureFileShares", volumes.azure_file_shares, secrets);
  put_mounts(json, "azureBlobFileSystems", volumes.azure_blob_file_systems, secrets);
  put_mounts(json, "fileServers", volumes.file_servers, secrets);
  put_mounts(json, "unmanagedFileSystems", volumes.unmanaged_file_systems, secrets);
}

void put_python(Json& block, const PythonScript& python) {
  block["pythonScriptFilePath"] = python.script_file_path;
  put(block, "pythonInterpreterPath", python.interpreter_path);
}

/// The toolkit's block, by the names of its properties; every overload has the block's own name beside it.
struct BlockWriter {
  Json& properties;

  void operator()(const CustomToolkitSettings& settings) const {
    properties["customToolkitSettings"] = {{"commandLine", settings.command_line}};
  }
  void operator()(const CustomMpiSettings& settings) const {
    Json& block = properties["customMpiSettings"] = {{"commandLine", settings.command_line}};
    put(block, "processCount", settings.process_count);
  }
  void operator()(const HorovodSettings& settings) const { put_python_block("horovodSettings", settings); }
  void operator()(const ChainerSettings& settings) const { put_python_block("chainerSettings", settings); }
  void operator()(const CntkSettings& settings) const {
    Json& block = put_config_or_script("cntkSettings", settings);
    block["languageType"] = std::holds_alternative<ConfigFile>(settings.program) ? "BrainScript" : "Python";
  }
  void operator()(const CaffeSettings& settings) const { put_config_or_script("caffeSettings", settings); }
  void operator()(const Caffe2Settings& settings) const {
    Json& block = properties["caffe2Settings"];
    put_python(block, settings.python);
    put_not_empty(block, "commandLineArgs", settings.command_line_args);
  }
  void operator()(const PyTorchSettings& settings) const {
    Json& block = put_python_block("pyTorchSettings", settings);
    if (!settings.communication_backend) return;
    const PyTorchBackend backend = *settings.communication_backend;
    block["communicationBackend"] = backend == PyTorchBackend::kTcp    ? "TCP"
                                    : backend == PyTorchBackend::kGloo ? "Gloo"
                                                                       : "MPI";
  }
  void operator()(const TensorFlowSettings& settings) const {
    Json& block = properties["tensorFlowSettings"];
    put_python(block, settings.python);
    put_not_empty(block, "masterCommandLineArgs", settings.master_command_line_args);
    put_not_empty(block, "workerCommandLineArgs", settings.worker_command_line_args);
    put_not_empty(block, "parameterServerCommandLineArgs", settings.parameter_server_command_line_args);
    put(block, "workerCount", settings.worker_count);
    put(block, "parameterServerCount", settings.parameter_server_count);
  }
  void operator()(const GyreSettings& settings) const {
    Json& block = properties["gyreSettings"];
    block = {{"program", settings.program},
             {"processesPerNode", settings.processes_per_node},
             {"restarts", settings.restarts}};
    put(block, "retries", settings.retries);
    if (settings.servers > 0) block["servers"] = settings.servers;  // Older services refuse the name.
  }

 private:
  template <typename Settings>
  Json& put_python_block(const char* name, const Settings& settings) const {
    Json& block = properties[name];
    put_python(block, settings.python);
    put_not_empty(block, "commandLineArgs", settings.command_line_args);
    put(block, "processCount", settings.process_count);
    return block;
  }
  template <typename Settings>
  Json& put_config_or_script(const char* name, const Settings& settings) const {
    Json& block = properties[name];
    if (const auto* config = std::get_if<ConfigFile>(&settings.program)) block["configFilePath"] = config->path;
    if (const auto* python = std::get_if<PythonScript>(&settings.program)) put_python(block, *python);
    put_not_empty(block, "commandLineArgs", settings.command_line_args);
    put(block, "processCount", settings.process_count);
    return block;
  }
};

void put_directories(Json& properties, const JobSpec& job) {
  for (const InputDirectory& input : job.input_directories)
    properties["inputDirectories"].push_back({{"id", input.id}, {"path", input.path}});
  for (const OutputDirectory& output : job.output_directories) {
    Json& entry =
        properties["outputDirectories"].emplace_back(Json{{"id", output.id}, {"pathPrefix", output.path_prefix}});
    put_not_empty(entry, "pathSuffix", output.path_suffix);
  }
}

std::string word_of(Containers containers) {
  switch (containers) {
    case Containers::kContainer: return "container";
    case Containers::kRefused: return "refused";
    case Containers::kHost: return "host";
  }
  return "container";
}

Json to_json(const PythonRequirements& requirements) {
  return requirements.file.empty() ? Json(requirements.lines) : Json(requirements.file);
}

Json to_json(const ContainerSettings& container, Secrets secrets) {
  Json json = Json::object();
  if (!container.image.empty()) {
    Json& registry = json["imageSourceRegistry"] = {{"image", container.image}};
    put(registry, "serverUrl", container.server_url);
    put_not_empty(registry, "digest", container.digest);
    if (container.credentials) {
      Json& credentials = registry["credentials"] = {{"username", container.credentials->username}};
      put_secret(credentials, "password", container.credentials->password, secrets);
    }
  }
  if (container.build && container.build->requirements) {
    json["build"]["requirements"] = to_json(*container.build->requirements);
  } else if (container.build) {
    json["build"]["dockerfile"] = container.build->dockerfile;
  }
  put(json, "shmSize", container.shm_size);
  if (container.read_bashrc) json["readBashrc"] = true;
  return json;
}

std::string_view word(SchedulingPriority priority) {
  switch (priority) {
    case SchedulingPriority::kLow: return "low";
    case SchedulingPriority::kNormal: return "normal";
    case SchedulingPriority::kHigh: return "high";
  }
  return "normal";
}

std::string_view word(NodeDeallocationOption option) {
  switch (option) {
    case NodeDeallocationOption::kRequeue: return "requeue";
    case NodeDeallocationOption::kTerminate: return "terminate";
    case NodeDeallocationOption::kWaitForJobCompletion: return "waitforjobcompletion";
  }
  return "requeue";
}

Json to_json(const std::variant<ManualScale, AutoScale>& scale) {
  if (const auto* manual = std::get_if<ManualScale>(&scale)) {
    return {{"manual",
             {{"targetNodeCount", manual->target_node_count},
              {"nodeDeallocationOption", word(manual->node_deallocation_option)}}}};
  }
  const auto& automatic = std::get<AutoScale>(scale);
  return {{"autoScale",
           {{"minimumNodeCount", automatic.minimum_node_count},
            {"maximumNodeCount", automatic.maximum_node_count},
            {"initialNodeCount", automatic.initial_node_count}}}};
}

Json to_json(const ImageReference& image) {
  Json json = {{"publisher", image.publisher}, {"offer", image.offer}, {"sku", image.sku}};
  put(json, "version", image.version);
  put(json, "virtualMachineImageId", image.virtual_machine_image_id);
  return json;
}

Json to_json(const SetupTask& task, Secrets secrets) {
  return {{"commandLine", task.command_line},
          {"stdOutErrPathPrefix", task.std_out_err_path_prefix},
          {"environmentVariables", to_json(task.environment_variables)},
          {"secrets", to_json(task.secrets, secrets)}};
}

Json node_setup(const ClusterSpec& cluster, Secrets secrets) {
  Json setup = Json::object();
  if (cluster.setup_task) setup["setupTask"] = to_json(*cluster.setup_task, secrets);
  put_mount_volumes(setup, cluster.mount_volumes, secrets);
  if (cluster.app_insights) {
    Json& insights = setup["performanceCountersSettings"]["appInsightsReference"];
    insights["component"]["id"] = cluster.app_insights->component_id;
    put_secret(insights, "instrumentationKey", cluster.app_insights->instrumentation_key, secrets);
  }
  return setup;
}

Json to_json(const UserAccountSettings& account, Secrets secrets) {
  Json json = Json::object();
  put_not_empty(json, "adminUserName", account.admin_user_name);
  put(json, "adminUserSshPublicKey", account.admin_user_ssh_public_key);
  if (account.admin_user_password)
    json["adminUserPassword"] = secrets == Secrets::kIncluded ? Json(*account.admin_user_password) : Json();
  return json;
}

}  // namespace

Json to_json(const JobSpec& job, Secrets secrets) {
  Json properties = {{"nodeCount", job.node_count},
                     {"schedulingPriority", word(job.scheduling_priority)},
                     {"toolType", tool_type(job.toolkit)},
                     {"stdOutErrPathPrefix", job.std_out_err_path_prefix},
                     {"constraints", {{"maxWallClockTime", iso_8601_duration(job.max_wall_clock_time)}}}};
  if (!job.cluster_id.empty()) properties["cluster"]["id"] = job.cluster_id;
  put(properties, "experimentName", job.experiment_name);
  std::visit(BlockWriter{properties}, job.toolkit);
  put_directories(properties, job);
  if (!job.output_files.empty()) properties["outputFiles"] = job.output_files;
  put(properties, "gpusPerNode", job.gpus_per_node);
  put(properties, "cpusPerNode", job.cpus_per_node);
  put(properties, "memoryPerNode", job.memory_per_node);
  put_mount_volumes(properties, job.mount_volumes, secrets);
  if (!job.environment_variables.empty()) properties["environmentVariables"] = to_json(job.environment_variables);
  if (!job.secrets.empty()) properties["secrets"] = to_json(job.secrets, secrets);
  if (job.container_settings) properties["containerSettings"] = to_json(*job.container_settings, secrets);
  if (job.requirements) properties["requirements"] = to_json(*job.requirements);
  if (job.job_preparation_command_line) properties["jobPreparation"]["commandLine"] = *job.job_preparation_command_line;
  return properties;
}

Json to_json(const ClusterSpec& cluster, Secrets secrets) {
  Json properties = {{"vmPriority", cluster.vm_priority == VmPriority::kDedicated ? "dedicated" : "lowpriority"},
                     {"scaleSettings", to_json(cluster.scale_settings)},
                     {"gyreSettings",
                      {{"driver", cluster.gyre.driver},
                       {"driverOptions", cluster.gyre.driver_options},
                       {"mounts", cluster.gyre.mounts},
                       {"containers", word_of(cluster.gyre.containers)}}}};
  put_not_empty(properties, "vmSize", cluster.vm_size);
  if (cluster.image) properties["virtualMachineConfiguration"]["imageReference"] = to_json(*cluster.image);
  if (Json setup = node_setup(cluster, secrets); !setup.empty()) properties["nodeSetup"] = std::move(setup);
  if (cluster.user_account) properties["userAccountSettings"] = to_json(*cluster.user_account, secrets);
  if (cluster.subnet_id) properties["subnet"]["id"] = *cluster.subnet_id;
  return properties;
}

}  // namespace gyre::jobs::spec
