#include "gyre/jobs/node/job_environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <variant>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"

namespace gyre::jobs::node {

using orders::NodePlace;
using orders::WorkOrder;

namespace {

constexpr std::size_t kShortestSecret = 4;
constexpr const char* kGpuMask = "CUDA_VISIBLE_DEVICES";

std::vector<std::string> addresses_of(const WorkOrder& order) {
  std::vector<std::string> addresses;
  for (const NodePlace& node : order.nodes) addresses.push_back(node.address);
  return addresses;
}

/// Where the job's processes are, and with whom.
void set_places(const WorkOrder& order, const NodeFolders& folders, Variables& variables) {
  const NodePlace& here = order.here();
  const std::vector<std::string> addresses = addresses_of(order);
  variables["AZ_BATCHAI_MOUNT_ROOT"] = mount_root(order, folders);
  variables["AZ_BATCHAI_JOB_MOUNT_ROOT"] = job_mount_root(order, folders);
  variables["AZ_BATCHAI_JOB_TEMP_DIR"] = jobs_root(order, folders);
  variables["AZ_BATCHAI_JOB_TEMP"] = job_folder(order, folders);
  variables["AZ_BATCHAI_JOB_WORK_DIR"] = work_folder(order, folders);
  variables["AZ_BATCHAI_SHARED_JOB_TEMP"] = order.shared_folder;
  variables["AZ_BATCHAI_MPI_HOST_FILE"] = job_folder(order, folders) / folders.host_file(order.job_name).filename();
  variables["AZ_BATCHAI_CLUSTER_NAME"] = order.cluster_name;
  variables["AZ_BATCHAI_JOB_NAME"] = order.job_name;
  for (const char* name : {"AZ_BATCHAI_NUM_GPUS", "AZ_BATCHAI_NUM_GPUS_PER_NODE", "AZ_BATCHAI_GPU_COUNT_FOUND"}) {
    variables[name] = std::to_string(here.gpus);
  }
  if (here.devices) variables[kGpuMask] = fmt::format("{}", fmt::join(*here.devices, ","));
  variables["AZ_BATCHAI_JOB_MASTER_NODE_IP"] = addresses.front();
  variables["AZ_BATCH_MASTER_NODE"] = addresses.front();
  variables["AZ_BATCH_HOST_LIST"] = fmt::format("{}", fmt::join(addresses, ","));
  variables["AZ_BATCH_NODE_LIST"] = fmt::format("{}", fmt::join(addresses, ";"));
  variables["AZ_BATCH_NODE_ID"] = here.id;
  variables["AZ_BATCH_IS_CURRENT_NODE_MASTER"] = order.is_master() ? "true" : "false";
  variables["AZUREML_NODE_COUNT"] = std::to_string(order.nodes.size());
}

/// Open MPI's daemons of one job that share a machine's /tmp make the same folders there and write the same topology
/// file: one start in eight failed. The variable in it is replaced on the daemon's own node, by a shell.
void set_open_mpi(const WorkOrder& order, Variables& variables) {
  if (!on_one_machine(order)) return;
  variables["OMPI_MCA_orte_launch_agent"] = R"(orted --mca orte_tmpdir_base "$AZ_BATCHAI_JOB_TEMP")";
}

/// Keras finds there what it computes with; Batch AI set it to the job's toolkit.
void set_keras_backend(const spec::Toolkit& toolkit, Variables& variables) {
  const auto* cntk = std::get_if<spec::CntkSettings>(&toolkit);
  if (cntk && std::holds_alternative<spec::PythonScript>(cntk->program)) variables["KERAS_BACKEND"] = "cntk";
  if (std::holds_alternative<spec::TensorFlowSettings>(toolkit)) variables["KERAS_BACKEND"] = "tensorflow";
}

/// What the job itself has chosen counts among its own GPUs, as on a machine that has only these: "0" is the first of
/// them.
void keep_to_own_gpus(const std::vector<std::string>& own, JobEnvironment& result) {
  std::string& mask = result.variables[kGpuMask];
  if (mask == fmt::format("{}", fmt::join(own, ","))) return;
  std::vector<std::string> kept;
  for (std::string entry : split(mask, ',')) {
    std::erase(entry, ' ');
    if (entry.empty() || entry.starts_with('-') || entry == "NoDevFiles") break;
    std::size_t place = std::ranges::find(own, entry) - own.begin();
    const char* end = entry.data() + entry.size();
    std::size_t number = 0;
    if (const auto read = std::from_chars(entry.data(), end, number); read.ptr == end) {
      place = read.ec == std::errc() ? number : own.size();
    }
    if (place >= own.size()) {
      result.warnings.push_back(fmt::format("the job's {} names {}, and the job has {} on this node", kGpuMask, entry,
                                            own.empty() ? "no GPU" : fmt::format("GPUs 0 to {}", own.size() - 1)));
      break;  // As CUDA does.
    }
    kept.push_back(own[place]);
  }
  mask = fmt::format("{}", fmt::join(kept, ","));
}

/// Expands texts of the order, and collects what is wrong with them.
class Expander {
 public:
  explicit Expander(JobEnvironment& result) : result_(result) {}

  std::string text(const std::string& what, const std::string& unexpanded) {
    Expanded expanded = expand(unexpanded, result_.variables);
    for (const std::string& name : expanded.unset) {
      result_.warnings.push_back(fmt::format("{} refers to ${}, which has no value; it became empty", what, name));
    }
    return std::move(expanded.text);
  }

  std::string path(const std::string& what, const std::string& unexpanded) {
    std::string path = text(what, unexpanded);
    if (path.starts_with('/')) return path;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} '{}' is '{}' on this node; an absolute path is needed, such as "
                            "$AZ_BATCHAI_MOUNT_ROOT/NAME",
                            what, unexpanded, path));
  }

 private:
  JobEnvironment& result_;
};

void set_folders(const WorkOrder& order, JobEnvironment& result, Expander& expander) {
  const spec::JobSpec& job = order.job;
  const auto use = [&](std::string prefix) {
    if (std::ranges::find(result.prefixes, prefix) == result.prefixes.end()) result.prefixes.push_back(prefix);
    return prefix;
  };
  const std::string logs = use(expander.path("stdOutErrPathPrefix", job.std_out_err_path_prefix));
  result.log_folder = log_folder(logs, order.path_segment);
  result.kept_files = kept_files_folder(logs, order.path_segment);
  result.variables["AZ_BATCHAI_STDOUTERR_DIR"] = result.log_folder;
  for (const spec::InputDirectory& input : job.input_directories) {
    result.variables["AZ_BATCHAI_INPUT_" + input.id] =
        expander.text(fmt::format("the path of input directory {}", input.id), input.path);
  }
  for (const spec::OutputDirectory& output : job.output_directories) {
    const std::string prefix =
        use(expander.path(fmt::format("the pathPrefix of output directory {}", output.id), output.path_prefix));
    std::string path = output_folder(prefix, order.path_segment);
    if (!output.path_suffix.empty()) path += "/" + output.path_suffix;
    result.variables["AZ_BATCHAI_OUTPUT_" + output.id] = path;
    // All attempts of a job share its folders: what an earlier one wrote is still there.
    result.variables["AZ_BATCHAI_PREV_OUTPUT_" + output.id] = order.attempt_number > 1 ? path : "";
    result.outputs.push_back({output.id, std::move(path)});
  }
}

}  // namespace

JobEnvironment job_environment(const WorkOrder& order, const NodeFolders& folders, const Variables& base,
                               const Variables& of_process) {
  JobEnvironment result;
  result.variables = base;
  Expander expander(result);
  set_places(order, folders, result.variables);
  set_open_mpi(order, result.variables);
  set_keras_backend(order.job.toolkit, result.variables);
  set_folders(order, result, expander);
  for (const auto& [name, value] : of_process) result.variables[name] = expander.text(name, value);
  for (const spec::EnvironmentVariable& variable : order.job.environment_variables) {
    // Not at once: a variable may refer to what the machine says of the same name, as PATH does.
    std::string value = expander.text(fmt::format("environment variable {}", variable.name), variable.value);
    result.variables[variable.name] = std::move(value);
  }
  for (const spec::SecretVariable& secret : order.job.secrets) {
    result.variables[secret.name] = secret.value.text.value_or("");
  }
  if (order.here().devices) keep_to_own_gpus(*order.here().devices, result);
  return result;
}

std::vector<std::string> unset_names(const std::string& what, const std::string& shell_line,
                                     const Variables& variables) {
  std::vector<std::string> sentences;
  for (const std::string& name : referenced_names(shell_line)) {
    if (!name.starts_with("AZ_BATCH") || variables.contains(name)) continue;
    sentences.push_back(fmt::format("{} refers to ${}, which has no value", what, name));
  }
  return sentences;
}

std::vector<std::string> secret_values(const WorkOrder& order) {
  std::vector<std::string> values;
  const auto add = [&](const spec::SecretValue& secret) {
    if (secret.text && secret.text->size() >= kShortestSecret) values.push_back(*secret.text);
  };
  for (const spec::SecretVariable& secret : order.job.secrets) add(secret.value);
  if (order.cluster.setup_task) {
    for (const spec::SecretVariable& secret : order.cluster.setup_task->secrets) add(secret.value);
  }
  for (const spec::MountVolumes* volumes : {&order.job.mount_volumes, &order.cluster.mount_volumes}) {
    for (const auto& share : volumes->azure_file_shares) add(share.account_key);
    for (const auto& blob : volumes->azure_blob_file_systems) add(blob.account_key);
  }
  std::ranges::sort(values);
  const auto repeated = std::ranges::unique(values);
  values.erase(repeated.begin(), repeated.end());
  return values;
}

std::vector<int> spread(int count, int nodes) {
  std::vector<int> counts;
  for (int node = 0; node < nodes; ++node) counts.push_back(count / nodes + (node < count % nodes ? 1 : 0));
  return counts;
}

std::string mpi_host_file(const WorkOrder& order, int processes) {
  const std::vector<int> counts = spread(processes, static_cast<int>(order.nodes.size()));
  std::string text;
  for (std::size_t node = 0; node < order.nodes.size(); ++node) {
    const NodePlace& place = order.nodes[node];
    // The line of a custom job says itself how many processes it wants; it is offered all that there is.
    const int cores = std::min(place.cores, order.job.cpus_per_node.value_or(place.cores));
    const int all = place.gpus > 0 ? place.gpus : cores;
    const int slots = processes > 0 ? std::max(1, counts[node]) : all;
    text += fmt::format("{} slots={} max_slots={}\n", place.address, slots, std::max(slots, cores));
  }
  return text;
}

bool on_one_machine(const WorkOrder& order) {
  return std::ranges::all_of(order.nodes, [](const NodePlace& node) { return node.address.starts_with("127."); });
}

std::vector<std::string> as_entries(const Variables& variables) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(fmt::format("{}={}", name, value));
  return entries;
}

}  // namespace gyre::jobs::node
