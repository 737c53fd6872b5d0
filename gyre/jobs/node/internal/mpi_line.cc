#include "gyre/jobs/node/internal/mpi_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/spec/variable_references.h"
#include "gyre/metrics/job_file.h"

namespace gyre::jobs::node::internal {

using orders::Mpi;
using orders::WorkOrder;

namespace {

std::string in_bash(const std::string& line) { return "bash -c " + in_single_quotes(line); }

/// MPI starts all ranks in the folder in which it was started itself, by the path that the first node has for it.
std::string in_own_folder(const WorkOrder& order, const std::string& line) {
  return in_bash(order.nodes.size() == 1 ? line : "cd \"$AZ_BATCHAI_JOB_WORK_DIR\" || exit; " + line);
}

/// Open MPI hands the environment to processes of the first node alone, unless it is told the names.
std::vector<std::string> names_to_hand_on(const WorkOrder& order) {
  std::vector<std::string> names = {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH"};
  for (const spec::EnvironmentVariable& variable : order.job.environment_variables) names.push_back(variable.name);
  std::erase(names, metrics::kJobTimelineVariable);  // Each node has its own.
  for (const spec::SecretVariable& secret : order.job.secrets) names.push_back(secret.name);
  for (const spec::InputDirectory& input : order.job.input_directories) {
    names.push_back("AZ_BATCHAI_INPUT_" + input.id);
  }
  for (const spec::OutputDirectory& output : order.job.output_directories) {
    names.push_back("AZ_BATCHAI_OUTPUT_" + output.id);
  }
  names.push_back("AZ_BATCHAI_STDOUTERR_DIR");
  std::ranges::sort(names);
  const auto repeated = std::ranges::unique(names);
  names.erase(repeated.begin(), repeated.end());
  return names;
}

/// What differs from node to node (AZ_BATCHAI_JOB_TEMP, say) comes from the remote shell, in which the daemons are
/// born.
std::string open_mpi_line(const WorkOrder& order, const std::string& line, int processes) {
  // Batch AI kept its traffic off the container bridge and loopback; nodes of one machine have nothing but loopback.
  const std::string interfaces = on_one_machine(order) ? "--mca btl_tcp_if_include lo --mca oob_tcp_if_include lo"
                                                       : "--mca btl_tcp_if_exclude docker0,lo";
  std::vector<std::string> words = {"mpirun",
                                    "-n",
                                    std::to_string(processes),
                                    "--hostfile",
                                    "\"$AZ_BATCHAI_MPI_HOST_FILE\"",
                                    "--oversubscribe",
                                    "--bind-to none",
                                    "--mca plm_rsh_agent \"$GYRE_REMOTE_SHELL\"",
                                    interfaces};
  for (const std::string& name : names_to_hand_on(order)) {
    // A name that is not set would be an error to mpirun.
    words.push_back(fmt::format("${{{0}+-x {0}}}", name));
  }
  words.push_back(in_own_folder(order, line));
  return fmt::format("{}", fmt::join(words, " "));
}

std::string hydra_line(const WorkOrder& order, const std::string& line, int processes) {
  const auto counts = spread(processes, static_cast<int>(order.nodes.size()));
  // Nothing is handed on: the remote shell of each node has all variables, and those that are the node's own.
  return fmt::format(
      "mpiexec -launcher ssh -launcher-exec \"$GYRE_REMOTE_SHELL\" -n {} -ppn {} "
      "-hosts \"$AZ_BATCH_HOST_LIST\" -genvnone {}",
      processes, std::max(1, counts.front()), in_own_folder(order, line));
}

/// What the job itself has a value for, as against the shell, or whoever reads the word.
bool is_known(std::string_view name, const spec::JobSpec& job) {
  const auto is_it = [&](const auto& variable) { return variable.name == name; };
  return name.starts_with("AZ_") || std::ranges::any_of(job.environment_variables, is_it) ||
         std::ranges::any_of(job.secrets, is_it);
}

}  // namespace

std::string in_double_quotes(std::string_view text) {
  const auto begins_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  std::string quoted = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::string_view after = text.substr(i + 1);
    const std::size_t name = after.starts_with('{') ? 1 : 0;
    const bool reference = c == '$' && after.size() > name && begins_name(after[name]);
    if (c == '"' || c == '\\' || c == '`' || (c == '$' && !reference)) quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string program_word(std::string_view text, const WorkOrder& order) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const char c = text.front();
    const auto reference = c == '$' ? spec::variable_reference_at(text) : std::nullopt;
    if (reference && is_known(reference->name, order.job)) {
      quoted += fmt::format("${{{}}}", reference->name);
      text.remove_prefix(reference->length);
      continue;
    }
    if (c == '"' || c == '\\' || c == '`' || c == '$') quoted += '\\';
    quoted += c;
    text.remove_prefix(text.starts_with(spec::kEscapedDollar) ? spec::kEscapedDollar.size() : 1);
  }
  return quoted + "\"";
}

std::string in_single_quotes(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string interpreter_word(const spec::PythonScript& python) {
  return python.interpreter_path ? in_double_quotes(*python.interpreter_path)
                                 : "\"$(command -v python || command -v python3 || echo python)\"";
}

std::string python_command(const spec::PythonScript& python) {
  return interpreter_word(python) + " " + in_double_quotes(python.script_file_path);
}

std::string horovod_command(const spec::PythonScript& python) {
  return fmt::format(
      "gyre_python={}; gyre_module=; \"$gyre_python\" -c \"import sys, importlib.util; "
      "sys.exit(not getattr(importlib.util.find_spec('gyre'), 'origin', None))\" 2> /dev/null && gyre_module=\"-m "
      "gyre.horovod\"; "
      "\"$gyre_python\" $gyre_module {}",
      interpreter_word(python), in_double_quotes(python.script_file_path));
}

std::string gyre_run_line(const WorkOrder& order, const std::string& command, int processes, int servers) {
  std::string line = "\"$GYRE_PROGRAM\" run";
  const std::vector<int> counts = spread(processes, static_cast<int>(order.nodes.size()));
  if (order.nodes.size() == 1) {
    line += fmt::format(" -n {}", processes);
  } else {
    std::vector<std::string> hosts;
    for (std::size_t node = 0; node < order.nodes.size(); ++node) {
      if (counts[node] > 0) hosts.push_back(fmt::format("{}:{}", order.nodes[node].address, counts[node]));
    }
    line += fmt::format(" -n {} -H {} --ssh \"$GYRE_REMOTE_SHELL\"", processes, fmt::join(hosts, ","));
  }
  if (servers > 0) line += fmt::format(" --servers {}", servers);
  return line + " --horovod-compat -- " + command;
}

std::string with_restarts(const std::string& line, int restarts) {
  if (restarts == 0) return line;
  // `gyre run` itself restarts the ranks of one host only.
  return fmt::format(
      "left={}; until {}; do code=$?; [ $left -gt 0 ] || exit $code; left=$((left - 1)); "
      "echo \"gyre: the ranks failed with exit code $code and are started again\" >&2; done",
      restarts, line);
}

std::string mpi_line(const WorkOrder& order, const std::string& line, int processes, Mpi mpi) {
  switch (mpi) {
    case Mpi::kOpenMpi: return open_mpi_line(order, line, processes);
    case Mpi::kHydra: return hydra_line(order, line, processes);
    case Mpi::kNone: break;
  }
  return gyre_run_line(order, in_bash(line), processes);
}

}  // namespace gyre::jobs::node::internal
