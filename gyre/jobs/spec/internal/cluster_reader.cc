#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "gyre/jobs/spec/internal/file_reader.h"
#include "gyre/jobs/spec/internal/object_reader.h"
#include "gyre/jobs/spec/internal/toolkit_readers.h"
#include "gyre/jobs/spec/internal/value_readers.h"
#include "gyre/jobs/spec/parse.h"

namespace gyre::jobs::spec {

namespace {

constexpr Words<VmPriority, 2> kVmPriorities = {
    {{"dedicated", VmPriority::kDedicated}, {"lowpriority", VmPriority::kLowPriority}}};
constexpr Words<NodeDeallocationOption, 3> kDeallocationOptions = {
    {{"requeue", NodeDeallocationOption::kRequeue},
     {"terminate", NodeDeallocationOption::kTerminate},
     {"waitforjobcompletion", NodeDeallocationOption::kWaitForJobCompletion}}};
constexpr Words<Containers, 3> kContainers = {
    {{"container", Containers::kContainer}, {"refused", Containers::kRefused}, {"host", Containers::kHost}}};

ManualScale read_manual(ObjectReader& manual) {
  ManualScale scale;
  scale.target_node_count = manual.required_integer("targetNodeCount", 0, kMostNodes);
  scale.node_deallocation_option =
      manual.choice("nodeDeallocationOption", kDeallocationOptions).value_or(NodeDeallocationOption::kRequeue);
  manual.finish();
  return scale;
}

AutoScale read_auto(ObjectReader& reader) {
  AutoScale scale;
  scale.minimum_node_count = reader.required_integer("minimumNodeCount", 0, kMostNodes);
  scale.maximum_node_count = reader.required_integer("maximumNodeCount", 0, kMostNodes);
  scale.initial_node_count = reader.integer("initialNodeCount", 0, kMostNodes).value_or(0);
  if (reader.has("maximumNodeCount") && scale.maximum_node_count < scale.minimum_node_count)
    reader.error("maximumNodeCount", "is below minimumNodeCount");
  reader.finish();
  return scale;
}

std::variant<ManualScale, AutoScale> read_scale_settings(ObjectReader& properties) {
  auto settings = properties.object("scaleSettings");
  if (!settings) return ManualScale{};
  std::variant<ManualScale, AutoScale> scale;
  auto manual = settings->object("manual");
  auto automatic = settings->object("autoScale");
  if (manual) scale = read_manual(*manual);
  if (automatic) scale = read_auto(*automatic);
  if (manual && automatic) settings->error("autoScale", "and manual exclude each other");
  if (!manual && !automatic) settings->missing("manual", "is missing, and so is autoScale: one of them is needed");
  settings->finish();
  return scale;
}

/// Some files have the image's fields one level too high.
std::optional<ImageReference> read_image(ObjectReader& properties) {
  auto machine = properties.object("virtualMachineConfiguration");
  if (!machine) return std::nullopt;
  auto reader = machine->object("imageReference");
  const bool one_level_up = machine->has("publisher") || machine->has("offer") || machine->has("sku");
  if (!reader && !one_level_up) {
    machine->finish();
    return std::nullopt;
  }
  ObjectReader& owner = reader ? *reader : *machine;
  if (!reader) machine->warning("imageReference", "is missing; its fields are looked for one level above");
  ImageReference image;
  image.publisher = owner.required_text("publisher");
  image.offer = owner.required_text("offer");
  image.sku = owner.required_text("sku");
  image.version = owner.text_or_nothing("version");
  owner.came_with(ApiVersion::k2018_03_01, "virtualMachineImageId");
  image.virtual_machine_image_id = owner.text_or_nothing("virtualMachineImageId");
  if (reader) reader->finish();
  machine->finish();
  return image;
}

std::optional<SetupTask> read_setup_task(ObjectReader& setup) {
  constexpr std::string_view kLogs = "stdOutErrPathPrefix";
  auto reader = setup.object("setupTask");
  if (!reader) return std::nullopt;
  SetupTask task;
  task.command_line = reader->required_text("commandLine");
  task.std_out_err_path_prefix = reader->required_text(kLogs);
  const std::string& prefix = task.std_out_err_path_prefix;
  if (!prefix.empty() && prefix.front() != '/' && prefix.front() != '$')
    reader->error(kLogs, "must be an absolute path, or begin with a variable such as $AZ_BATCHAI_MOUNT_ROOT");
  read_variables(*reader, task.environment_variables, task.secrets);
  reader->accept({"stdOutErrPathSuffix"});
  reader->accept_until(ApiVersion::k2018_03_01, "runElevated", "the task always runs as root");
  reader->finish();
  return task;
}

std::optional<AppInsightsReference> read_app_insights(ObjectReader& setup) {
  constexpr std::string_view kName = "performanceCountersSettings";
  setup.came_with(ApiVersion::k2018_03_01, kName);
  auto settings = setup.object(kName);
  if (!settings) return std::nullopt;
  std::optional<AppInsightsReference> insights;
  if (auto reader = settings->required_object("appInsightsReference")) {
    insights.emplace();
    insights->component_id = read_resource_id(*reader, "component", true);
    insights->instrumentation_key = read_secret(*reader, "instrumentationKey", true);
    reader->finish();
  }
  settings->finish();
  return insights;
}

std::optional<UserAccountSettings> read_user_account(ObjectReader& properties) {
  auto reader = properties.object("userAccountSettings");
  if (!reader) return std::nullopt;
  UserAccountSettings account;
  account.admin_user_name = reader->text_or_nothing("adminUserName").value_or("");
  account.admin_user_ssh_public_key = reader->text_or_nothing("adminUserSshPublicKey");
  account.admin_user_password = reader->text_or_nothing("adminUserPassword");
  reader->finish();
  return account;
}

std::map<std::string, std::string> read_mounts(ObjectReader& block) {
  std::map<std::string, std::string> mounts;
  for (const auto& [name, directory] : block.table("mounts")) {
    const std::string path = relative_path(block, "mounts", name);
    if (path.empty() || name.starts_with('/'))
      block.error("mounts", "names must be relative mount paths: \"external\": \"/data/external\"");
    if (!directory.starts_with('/')) block.error("mounts", "must lead to absolute directories of the nodes");
    mounts[path] = directory;
  }
  return mounts;
}

ClusterGyreSettings read_gyre_settings(ObjectReader& properties) {
  ClusterGyreSettings settings;
  auto block = properties.object("gyreSettings");
  if (!block) return settings;
  settings.driver = block->text_or_nothing("driver").value_or(settings.driver);
  for (auto& [name, value] : block->table("driverOptions")) settings.driver_options[name] = std::move(value);
  settings.mounts = read_mounts(*block);
  settings.containers = block->choice("containers", kContainers).value_or(settings.containers);
  block->finish();
  return settings;
}

/// What a command line says wins; ours need none.
std::string read_vm_size(ObjectReader& properties) {
  constexpr std::string_view kName = "vmSize";
  const std::optional<std::string> given = properties.text(kName);
  if (const auto& from_outside = properties.reading().options.vm_size) return *from_outside;
  const bool missing = given ? given->empty() : !properties.has(kName);
  if (missing && !properties.has("gyreSettings")) properties.missing(kName);
  return given.value_or("");
}

ClusterSpec read_cluster(ObjectReader& properties) {
  ClusterSpec cluster;
  cluster.gyre = read_gyre_settings(properties);
  cluster.vm_size = read_vm_size(properties);
  cluster.vm_priority = properties.choice("vmPriority", kVmPriorities).value_or(VmPriority::kDedicated);
  cluster.scale_settings = read_scale_settings(properties);
  cluster.image = read_image(properties);
  if (auto setup = properties.object("nodeSetup")) {
    cluster.setup_task = read_setup_task(*setup);
    cluster.mount_volumes = read_mount_volumes(*setup);
    cluster.app_insights = read_app_insights(*setup);
    setup->finish();
  }
  cluster.user_account = read_user_account(properties);
  const std::string subnet = read_resource_id(properties, "subnet", false);
  if (!subnet.empty()) cluster.subnet_id = subnet;
  // What the service adds to the clusters that it lists.
  properties.accept({"creationTime", "provisioningState", "provisioningStateTransitionTime", "allocationState",
                     "allocationStateTransitionTime", "errors", "currentNodeCount", "nodeStateCounts", "description"});
  return cluster;
}

}  // namespace

Parsed<ClusterSpec> parse_cluster(std::string_view text, const ParseOptions& options) {
  std::optional<ClusterSpec> spec;
  FileReading file =
      read_file(text, options, "cluster", [&](ObjectReader& properties) { spec = read_cluster(properties); });
  return result_of(std::move(file), std::move(spec));
}

}  // namespace gyre::jobs::spec
