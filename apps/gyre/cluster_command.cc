#include <fmt/format.h>

#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <system_error>

#include "apps/gyre/job_file.h"
#include "apps/gyre/mount_table.h"
#include "apps/gyre/remote.h"
#include "apps/gyre/resource_commands.h"
#include "apps/gyre/run_command.h"
#include "gyre/base/error.h"
#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/write.h"

// `gyre cluster …`.
namespace gyre::app {

namespace {

using Environment = std::vector<std::string>;
using jobs::client::below;
using jobs::client::Path;
using jobs::client::Session;

constexpr std::chrono::seconds kLongestDeletion{120};

constexpr int kMostNodes = 10'000;

CLI::Validator number_of_nodes() {
  const auto check = [](std::string& text) {
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, number);
    if (failure == std::errc() && stop == end && number >= 0 && number <= kMostNodes) return std::string();
    return fmt::format("'{}' is not a whole number from 0 to {}", text, kMostNodes);
  };
  return {check, "", ""};
}

/// --target, --min, --max and what happens to running jobs.
struct ScaleOptions {
  std::optional<int> target{};
  std::optional<int> minimum{};
  std::optional<int> maximum{};
  std::string when_busy{};

  void add_options(CLI::App& verb) {
    verb.add_option("-t,--target", target, "Number of nodes")->type_name("N")->check(number_of_nodes());
    verb.add_option("--min", minimum, "Scale with the jobs: minimum number of nodes")
        ->type_name("N")
        ->check(number_of_nodes());
    verb.add_option("--max", maximum, "Maximum number of nodes")->type_name("N")->check(number_of_nodes());
    verb.add_option("--when-busy", when_busy, "What happens to jobs on nodes that leave (default: requeue)")
        ->check(CLI::IsMember({"requeue", "terminate", "waitforjobcompletion"}))
        ->type_name("OPTION");
  }

  /// `scaleSettings`; null where the options say nothing. UsageError for options that contradict each other.
  Json settings() const {
    if (target && (minimum || maximum)) throw UsageError("give either --target, or --min and --max");
    if (minimum || maximum) {
      if (!maximum) throw UsageError("--min needs --max");
      if (minimum.value_or(0) > *maximum) {
        throw UsageError(fmt::format("--min {} is above --max {}", *minimum, *maximum));
      }
      if (!when_busy.empty()) throw UsageError("--when-busy goes with --target");
      return {{"autoScale", {{"minimumNodeCount", minimum.value_or(0)}, {"maximumNodeCount", *maximum}}}};
    }
    if (!target) {
      if (!when_busy.empty()) throw UsageError("--when-busy goes with --target");
      return {};
    }
    Json manual = {{"targetNodeCount", *target}};
    if (!when_busy.empty()) manual["nodeDeallocationOption"] = when_busy;
    return {{"manual", std::move(manual)}};
  }
};

struct ClusterOptions {
  Remote remote{};
  std::string name{};
  std::string file{};
  std::string size{};
  std::string priority{};
  std::vector<std::string> mounts{};
  std::string setup_task{};
  std::string setup_output{};
  std::string driver{};
  std::vector<std::string> driver_options{};
  bool container_on_host = false;
  bool yes = false;
  bool no_wait = false;
  ScaleOptions scale{};
};

constexpr char kCreateExplanation[] = R"(
FILE is a cluster.json of Batch AI, as JSON or YAML; options override it. Without FILE and --driver the cluster's nodes
are virtual nodes of the server's machine. --mount NAME=DIR makes the directory DIR on the nodes stand in for the file
share that jobs know as $AZ_BATCHAI_MOUNT_ROOT/NAME.

Examples:
  gyre cluster create pool --target 4 --mount external=/data/share
  gyre cluster create pool --min 0 --max 8
  gyre cluster create lab --target 2 --driver ssh --driver-option hosts=node1,node2
  gyre cluster create pool -f cluster.json --containers-on-host)";

/// The file's properties, or a cluster of this kind without a file.
Json file_properties(const ClusterOptions& options, const Environment& environment) {
  if (options.file.empty()) {
    return {{"gyreSettings", {{"driver", options.driver.empty() ? "local" : options.driver}}},
            {"scaleSettings", {{"manual", {{"targetNodeCount", 0}}}}}};
  }
  jobs::spec::ParseOptions how = spec_file_options(options.file, environment);
  if (!options.size.empty()) how.vm_size = options.size;
  const auto parsed = jobs::spec::parse_cluster(read_spec_file(options.file), how);
  const std::string name = spec_file_name(options.file);
  if (parsed.spec) {
    for (const jobs::spec::Problem& problem : parsed.problems) fmt::print(stderr, "{}\n", describe(problem, name));
  }
  return jobs::spec::to_json(jobs::spec::cluster_or_throw(parsed, name), jobs::spec::Secrets::kIncluded);
}

std::map<std::string, std::string> pairs_of(const std::vector<std::string>& pairs, const char* option) {
  std::map<std::string, std::string> table;
  for (const std::string& pair : pairs) {
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw UsageError(fmt::format("{} takes NAME=VALUE, not '{}'", option, pair));
    }
    table[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return table;
}

Json cluster_of(const ClusterOptions& options, const Environment& environment) {
  Json properties = file_properties(options, environment);
  Json& ours = properties["gyreSettings"];
  if (const Json scale = options.scale.settings(); !scale.is_null()) properties["scaleSettings"] = scale;
  if (options.file.empty() && options.scale.settings().is_null()) {
    throw UsageError("give the number of nodes: --target N, or --min N --max N");
  }
  if (!options.size.empty()) properties["vmSize"] = options.size;  // Without a file, too.
  if (!options.priority.empty()) properties["vmPriority"] = options.priority;
  if (!options.driver.empty()) ours["driver"] = options.driver;
  for (const auto& [name, value] : pairs_of(options.driver_options, "--driver-option")) {
    ours["driverOptions"][name] = value;
  }
  for (const auto& [name, directory] : mount_table(options.mounts, MountCheck::kForm)) ours["mounts"][name] = directory;
  if (options.container_on_host) ours["containers"] = "host";
  if (!options.setup_task.empty()) {
    properties["nodeSetup"]["setupTask"]["commandLine"] = options.setup_task;
    properties["nodeSetup"]["setupTask"]["stdOutErrPathPrefix"] = options.setup_output;
  }
  return {{"properties", std::move(properties)}};
}

std::string scale_of(const Json& cluster) {
  const std::string at = "/properties/scaleSettings/";
  std::string target = text_at(cluster, at + "manual/targetNodeCount");
  if (!target.empty()) return target;
  return text_at(cluster, at + "autoScale/minimumNodeCount") + " to " +
         text_at(cluster, at + "autoScale/maximumNodeCount");
}

/// "2 idle, 1 running".
std::string nodes_of(const Json& cluster) {
  std::string text;
  for (const char* state : {"idle", "running", "preparing", "unusable", "leaving"}) {
    const std::string count = text_at(cluster, fmt::format("/properties/nodeStateCounts/{}NodeCount", state));
    if (!count.empty() && count != "0") text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, state);
  }
  return text.empty() ? "0" : text;
}

std::string state_of(const Json& cluster) {
  const std::string provisioning = text_at(cluster, "/properties/provisioningState");
  return provisioning == "succeeded" ? text_at(cluster, "/properties/allocationState") : provisioning;
}

std::string cluster_table(const std::vector<Json>& clusters) {
  return table_of(clusters, {column("NAME", "/name"),
                             {"STATE", state_of},
                             {"TARGET", scale_of},
                             {"NODES", nodes_of},
                             column("DRIVER", "/properties/gyreSettings/driver"),
                             time_column("CREATED", "/properties/creationTime")});
}

std::string node_table(const std::vector<Json>& nodes) {
  const auto since = [](const Json& node) { return shown_duration(text_at(node, "/stateTransitionTime"), ""); };
  std::vector<Column> columns = {
      column("NODE", "/nodeId"),       column("STATE", "/state"), {"FOR", since},
      column("ADDRESS", "/ipAddress"), column("JOB", "/job"),     column("PROBLEM", "/problem")};
  const auto has_gpus = [](const Json& node) {
    return node.contains("gpus") && node["gpus"] != 0 && node["gpus"] != nullptr;
  };
  if (std::ranges::any_of(nodes, has_gpus)) columns.insert(columns.begin() + 4, column("GPUS", "/gpus"));
  return table_of(nodes, columns);
}

std::string cluster_fields(const Json& cluster) {
  std::vector<std::pair<std::string, std::string>> fields = {
      {"name", text_at(cluster, "/name")},
      {"state", state_of(cluster)},
      {"target", scale_of(cluster)},
      {"nodes", nodes_of(cluster)},
      {"driver", text_at(cluster, "/properties/gyreSettings/driver")},
      {"vmSize", text_at(cluster, "/properties/vmSize")},
      {"created", shown_time(text_at(cluster, "/properties/creationTime"))}};
  for (const auto& [name, directory] : cluster.at("properties").at("gyreSettings").at("mounts").items()) {
    fields.emplace_back("mount", fmt::format("{} = {}", name, directory.get<std::string>()));
  }
  for (const Json& error : cluster.at("properties").at("errors")) {
    fields.emplace_back("error", fmt::format("{}: {}", text_at(error, "/code"), text_at(error, "/message")));
  }
  return shown_fields(fields);
}

std::shared_ptr<ClusterOptions> add_named(CLI::App& verb, unsigned options = Remote::kWorkspace | Remote::kOutput) {
  auto named = std::make_shared<ClusterOptions>();
  verb.add_option("NAME", named->name, "The cluster's name")->required();
  named->remote.add_options(verb, options);
  return named;
}

Path path_of(const ClusterOptions& options, const Environment& environment) {
  return {"workspaces", options.remote.workspace_in(environment), "clusters", options.name};
}

void add_create(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("create", "Make a cluster (administrators)");
  auto options = add_named(*verb);
  verb->add_option("-f,--file", options->file, "cluster.json, or a file of YAML; - is stdin")->type_name("FILE");
  options->scale.add_options(*verb);
  verb->add_option("--mount", options->mounts, "Directory DIR on the nodes for the mount NAME; repeatable")
      ->type_name("NAME=DIR")
      ->allow_extra_args(false);
  verb->add_flag("--containers-on-host", options->container_on_host,
                 "Run jobs with containerSettings on the host, without their containers");
  verb->add_option("--setup-task", options->setup_task, "Shell command that prepares each node")->type_name("LINE");
  verb->add_option("--setup-task-output", options->setup_output, "Folder for its logs")->type_name("DIR");
  verb->add_option("-s,--size", options->size, "vmSize; recorded, without effect")->type_name("NAME");
  verb->add_option("--vm-priority", options->priority, "dedicated or lowpriority")
      ->check(CLI::IsMember({"dedicated", "lowpriority"}))
      ->type_name("PRIORITY");
  verb->add_option("--driver", options->driver,
                   "local: virtual nodes of the server's machine (the default); slurm; or ssh: a list of hosts")
      ->type_name("NAME");
  verb->add_option("--driver-option", options->driver_options, "Option for the driver; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  verb->footer(kCreateExplanation);
  group.add(verb, [options](const Environment& environment) {
    const Json body = cluster_of(*options, environment);
    Session session = options->remote.session(environment);
    const Json cluster = session.put(path_of(*options, environment), body);
    options->remote.print(cluster, [&] { return cluster_table({cluster}); });
    return 0;
  });
}

void add_list_and_show(VerbGroup& group) {
  CLI::App* list = group.app().add_subcommand("list", "List a workspace's clusters");
  auto listed = std::make_shared<ClusterOptions>();
  listed->remote.add_options(*list);
  group.add(list, [listed](const Environment& environment) {
    Session session = listed->remote.session(environment);
    const auto clusters = session.list({"workspaces", listed->remote.workspace_in(environment), "clusters"});
    listed->remote.print(clusters, [&] { return cluster_table(clusters); });
    return 0;
  });
  CLI::App* show = group.app().add_subcommand("show", "Show a cluster");
  auto shown = add_named(*show);
  group.add(show, [shown](const Environment& environment) {
    const Json cluster = shown->remote.session(environment).get(path_of(*shown, environment));
    shown->remote.print(cluster, [&] { return cluster_fields(cluster); });
    return 0;
  });
  CLI::App* nodes = group.app().add_subcommand("nodes", "List a cluster's nodes and their problems");
  auto of = add_named(*nodes);
  group.add(nodes, [of](const Environment& environment) {
    const auto all = of->remote.session(environment).list(below(path_of(*of, environment), "nodes"));
    of->remote.print(all, [&] { return node_table(all); });
    return 0;
  });
}

void add_resize(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("resize", "Change the number of a cluster's nodes (administrators)");
  auto options = add_named(*verb);
  options->scale.add_options(*verb);
  verb->footer(
      "\nExamples:\n  gyre cluster resize pool --target 8\n  gyre cluster resize pool --target 0 --when-busy "
      "waitforjobcompletion\n  gyre cluster resize pool --min 1 --max 8");
  group.add(verb, [options](const Environment& environment) {
    const Json scale = options->scale.settings();
    if (scale.is_null()) throw UsageError("give the new number of nodes: --target N, or --min N --max N");
    Session session = options->remote.session(environment);
    const Json cluster = session.patch(path_of(*options, environment), {{"properties", {{"scaleSettings", scale}}}});
    options->remote.print(cluster, [&] { return cluster_table({cluster}); });
    return 0;
  });
}

void add_delete(VerbGroup& group) {
  CLI::App* verb =
      group.app().add_subcommand("delete", "Delete a cluster; the records of its finished jobs stay (administrators)");
  auto options = add_named(*verb, Remote::kWorkspace);
  verb->add_flag("-y,--yes", options->yes, "Do not ask for confirmation");
  verb->add_flag("--no-wait", options->no_wait, "Do not wait until it is deleted");
  group.add(verb, [options](const Environment& environment) {
    const std::string what = fmt::format("cluster '{}'", options->name);
    Session session = options->remote.session(environment);
    if (!confirmed(fmt::format("Delete {}?", what), options->yes)) return 1;
    const Path path = path_of(*options, environment);
    session.remove(path);
    if (!options->no_wait) wait_until_gone(session, path, kLongestDeletion, what);
    return 0;
  });
}

}  // namespace

std::unique_ptr<VerbGroup> cluster_verbs(CLI::App& app) {
  auto group = std::make_unique<VerbGroup>(app, "cluster", "Clusters of a job server: the nodes that jobs run on",
                                           "  gyre cluster create pool --target 4 --mount external=/data/share\n"
                                           "  gyre cluster nodes pool\n  gyre cluster resize pool --target 8");
  add_create(*group);
  add_list_and_show(*group);
  add_resize(*group);
  add_delete(*group);
  return group;
}

}  // namespace gyre::app
