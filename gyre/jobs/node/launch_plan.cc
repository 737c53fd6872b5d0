#include "gyre/jobs/node/launch_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "gyre/base/check.h"
#include "gyre/jobs/node/internal/mpi_line.h"
#include "gyre/jobs/node/internal/tensorflow_plan.h"
#include "gyre/jobs/node/job_environment.h"
#include "gyre/jobs/spec/variable_references.h"

namespace gyre::jobs::node {

using orders::Mpi;
using orders::NodeFacts;
using orders::WorkOrder;

namespace {

constexpr int kPortsOfMaster = 2;  // torch's store, Gyre's rendezvous.

std::string join_words(const std::string& line, const std::string& arguments) {
  return arguments.empty() ? line : line + " " + arguments;
}

std::string python_line(const spec::PythonScript& python, const std::string& arguments) {
  return join_words(internal::python_command(python), arguments);
}

/// What runs in each process, and in how many.
struct MpiProgram {
  std::string line;
  int processes = 1;
  std::string without_gyre_run{};  ///< The line, where `gyre run` does not start it, if it is another one then.
};

std::string cntk_line(const spec::CntkSettings& settings) {
  if (const auto* script = std::get_if<spec::PythonScript>(&settings.program)) {
    return python_line(*script, settings.command_line_args);
  }
  const std::string& path = std::get<spec::ConfigFile>(settings.program).path;
  return join_words("cntk " + internal::in_double_quotes("configFile=" + path), settings.command_line_args);
}

std::string caffe_line(const spec::CaffeSettings& settings) {
  if (const auto* script = std::get_if<spec::PythonScript>(&settings.program)) {
    return python_line(*script, settings.command_line_args);
  }
  const std::string& path = std::get<spec::ConfigFile>(settings.program).path;
  return join_words("caffe train " + internal::in_double_quotes("--solver=" + path), settings.command_line_args);
}

/// The program of a toolkit that runs under mpirun; nothing for the others.
std::optional<MpiProgram> mpi_program(const spec::JobSpec& job) {
  const auto with_line = [&](std::string line) { return MpiProgram{std::move(line), spec::process_count(job)}; };
  if (const auto* mpi = std::get_if<spec::CustomMpiSettings>(&job.toolkit)) return with_line(mpi->command_line);
  if (const auto* horovod = std::get_if<spec::HorovodSettings>(&job.toolkit)) {
    MpiProgram program = with_line(python_line(horovod->python, horovod->command_line_args));
    program.without_gyre_run = join_words(internal::horovod_command(horovod->python), horovod->command_line_args);
    return program;
  }
  if (const auto* chainer = std::get_if<spec::ChainerSettings>(&job.toolkit)) {
    return with_line(python_line(chainer->python, chainer->command_line_args));
  }
  if (const auto* cntk = std::get_if<spec::CntkSettings>(&job.toolkit)) return with_line(cntk_line(*cntk));
  if (const auto* caffe = std::get_if<spec::CaffeSettings>(&job.toolkit)) return with_line(caffe_line(*caffe));
  const auto* torch = std::get_if<spec::PyTorchSettings>(&job.toolkit);
  if (torch != nullptr && torch->communication_backend == spec::PyTorchBackend::kMpi) {
    return with_line(python_line(torch->python, torch->command_line_args));
  }
  return std::nullopt;
}

/// Whether the job asks for Keras's names of 2018, which only `gyre run` gives to processes.
bool wants_names_of_2018(const spec::JobSpec& job) {
  return std::ranges::any_of(job.environment_variables, [](const spec::EnvironmentVariable& variable) {
    return variable.name == "GYRE_KERAS_2018" && variable.value != "0";
  });
}

/// CNTK alone starts a single process without mpirun.
bool runs_directly(const spec::JobSpec& job, const MpiProgram& program) {
  return program.processes == 1 && std::holds_alternative<spec::CntkSettings>(job.toolkit);
}

std::vector<NodePlan> once_on_master(const WorkOrder& order, std::string line) {
  std::vector<NodePlan> plans(order.nodes.size());
  ProcessPlan process;
  process.shell_line = std::move(line);
  plans.front().processes.push_back(std::move(process));
  return plans;
}

std::vector<NodePlan> under_mpi(const WorkOrder& order, const MpiProgram& program,
                                const std::vector<NodeFacts>& facts) {
  const bool by_gyre = wants_names_of_2018(order.job);
  if (runs_directly(order.job, program) && !by_gyre) return once_on_master(order, program.line);
  const Mpi mpi = facts.front().mpi;
  const bool same = !by_gyre && std::ranges::all_of(facts, [&](const NodeFacts& each) { return each.mpi == mpi; });
  const bool by_mpi = same && mpi != Mpi::kNone;
  const std::string& line = by_mpi && !program.without_gyre_run.empty() ? program.without_gyre_run : program.line;
  return once_on_master(order, internal::mpi_line(order, line, program.processes, by_mpi ? mpi : Mpi::kNone));
}

/// Processes with a number each, in blocks over the nodes; they are ranks for whoever wants to know.
std::vector<NodePlan> numbered(const WorkOrder& order, const std::vector<NodeFacts>& facts, const std::string& line,
                               int processes, const Variables& variables) {
  const std::vector<int> counts = spread(processes, static_cast<int>(order.nodes.size()));
  std::vector<NodePlan> plans;
  int next = 0;
  for (const int count : counts) {
    NodePlan plan;
    plan.ranks = true;
    plan.first_rank = next;
    plan.size = processes;
    plan.master_port = facts.front().ports.at(0);
    plan.rendezvous_port = facts.front().ports.at(1);
    for (int i = 0; i < count; ++i, ++next) {
      ProcessPlan process;
      process.shell_line = line;
      process.variables = variables;
      process.variables["AZ_BATCHAI_TASK_INDEX"] = std::to_string(next);
      process.index = next;
      process.role_size = processes;
      process.log_suffix = fmt::format("-{}", next);
      plan.processes.push_back(std::move(process));
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<NodePlan> torch_plan(const WorkOrder& order, const spec::PyTorchSettings& settings,
                                 const std::vector<NodeFacts>& facts) {
  const bool tcp = settings.communication_backend == spec::PyTorchBackend::kTcp;
  // A file of its own for every attempt: one that an earlier attempt has left behind would hold stale addresses.
  const std::string file = fmt::format("init-{}", order.attempt);
  const Variables variables = {{"AZ_BATCHAI_PYTORCH_INIT_METHOD", internal::kSharedFileUrl + file},
                               {"AZ_BATCHAI_PYTORCH_BACKEND", tcp ? "tcp" : "gloo"}};
  return numbered(order, facts, python_line(settings.python, settings.command_line_args),
                  spec::process_count(order.job), variables);
}

std::string gyre_line(const WorkOrder& order, const spec::GyreSettings& settings) {
  const bool shell_line = spec::are_shell_line(settings.program);
  std::vector<std::string> words;
  for (const std::string& word : settings.program) {
    // A shell has the job's variables, and those of its own node; a value that stood in its line would be read as code.
    const bool line = shell_line && words.size() == 2;
    words.push_back(line ? internal::in_single_quotes(word) : internal::program_word(word, order));
  }
  const int processes = settings.processes_per_node * static_cast<int>(order.nodes.size());
  const std::string command = fmt::format("{}", fmt::join(words, " "));
  return internal::with_restarts(internal::gyre_run_line(order, command, processes, settings.servers),
                                 settings.restarts);
}

}  // namespace

int ports_needed(const WorkOrder& order, int node) {
  if (const auto* tensorflow = std::get_if<spec::TensorFlowSettings>(&order.job.toolkit)) {
    return internal::tensorflow_processes(order, *tensorflow, node);
  }
  return node == 0 ? kPortsOfMaster : 0;
}

int mpi_processes(const spec::JobSpec& job) {
  return std::holds_alternative<spec::CustomToolkitSettings>(job.toolkit) ? 0 : spec::process_count(job);
}

std::vector<NodePlan> launch_plan(const WorkOrder& order, const std::vector<NodeFacts>& facts) {
  GYRE_CHECK(facts.size() == order.nodes.size());
  const spec::JobSpec& job = order.job;
  if (const auto program = mpi_program(job)) return under_mpi(order, *program, facts);
  if (const auto* custom = std::get_if<spec::CustomToolkitSettings>(&job.toolkit)) {
    return once_on_master(order, custom->command_line);
  }
  if (const auto* gyre = std::get_if<spec::GyreSettings>(&job.toolkit)) {
    return once_on_master(order, gyre_line(order, *gyre));
  }
  if (const auto* caffe2 = std::get_if<spec::Caffe2Settings>(&job.toolkit)) {
    return numbered(order, facts, python_line(caffe2->python, caffe2->command_line_args),
                    static_cast<int>(order.nodes.size()), {});
  }
  if (const auto* torch = std::get_if<spec::PyTorchSettings>(&job.toolkit)) return torch_plan(order, *torch, facts);
  return internal::tensorflow_plan(order, std::get<spec::TensorFlowSettings>(job.toolkit), facts);
}

}  // namespace gyre::jobs::node
