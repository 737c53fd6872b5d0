// Every toolkit block of Batch AI must start what the service started, where it started it, with the variables that its
// scripts read.
#include "gyre/jobs/node/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gyre::jobs::node {

using orders::Mpi;
using orders::NodeFacts;
using orders::WorkOrder;

namespace {

using testing::HasSubstr;
using testing::Not;

WorkOrder order_of(spec::Toolkit toolkit, int nodes) {
  WorkOrder order;
  order.attempt = "a1";
  order.job_name = "job";
  order.job.node_count = nodes;
  order.job.toolkit = std::move(toolkit);
  for (int i = 0; i < nodes; ++i) {
    order.nodes.push_back({"n" + std::to_string(i), "10.0.0." + std::to_string(4 + i), 8, 0});
  }
  return order;
}

std::vector<NodeFacts> facts_of(const WorkOrder& order, Mpi mpi = Mpi::kNone) {
  std::vector<NodeFacts> all;
  for (int node = 0; node < static_cast<int>(order.nodes.size()); ++node) {
    NodeFacts facts;
    facts.mpi = mpi;
    for (int i = 0; i < ports_needed(order, node); ++i) facts.ports.push_back(2222 + i);
    all.push_back(facts);
  }
  return all;
}

std::vector<NodePlan> plan_of(spec::Toolkit toolkit, int nodes, Mpi mpi = Mpi::kNone) {
  const WorkOrder order = order_of(std::move(toolkit), nodes);
  return launch_plan(order, facts_of(order, mpi));
}

/// The one process, which is on the master.
const ProcessPlan& only(const std::vector<NodePlan>& plans) {
  EXPECT_EQ(plans.front().processes.size(), 1U);
  for (std::size_t i = 1; i < plans.size(); ++i) EXPECT_TRUE(plans[i].processes.empty());
  return plans.front().processes.front();
}

TEST(LaunchPlan, a_custom_line_runs_once_on_the_master_as_it_is) {
  const auto plans = plan_of(spec::CustomToolkitSettings{"echo \"$A\" && ./run.sh"}, 3);
  EXPECT_EQ(only(plans).shell_line, "echo \"$A\" && ./run.sh");
  EXPECT_EQ(only(plans).log_suffix, "");
  EXPECT_FALSE(plans.front().ranks);
}

TEST(LaunchPlan, mpi_programs_run_under_mpirun_where_all_nodes_have_it) {
  const spec::HorovodSettings horovod{{"$AZ_BATCHAI_INPUT_SCRIPTS/train.py", "/opt/python"}, "--epochs 1", 4};
  const std::string line = only(plan_of(horovod, 2, Mpi::kOpenMpi)).shell_line;
  EXPECT_THAT(line, HasSubstr("mpirun -n 4 --hostfile \"$AZ_BATCHAI_MPI_HOST_FILE\""));
  EXPECT_THAT(line, HasSubstr("--mca btl_tcp_if_exclude docker0,lo"));
  EXPECT_THAT(line, HasSubstr("plm_rsh_agent \"$GYRE_REMOTE_SHELL\""));
  EXPECT_THAT(line, HasSubstr(R"(bash -c 'cd "$AZ_BATCHAI_JOB_WORK_DIR" || exit; )"
                              R"(gyre_python="/opt/python"; )"));
  EXPECT_THAT(line, HasSubstr(R"("$gyre_python" $gyre_module "$AZ_BATCHAI_INPUT_SCRIPTS/train.py" --epochs 1')"));
}

TEST(LaunchPlan, mpi_programs_run_under_gyre_run_where_a_node_has_no_mpi) {
  const WorkOrder order = order_of(spec::CustomMpiSettings{"./solver 'a b'", 3}, 2);
  auto facts = facts_of(order, Mpi::kOpenMpi);
  facts[1].mpi = Mpi::kNone;
  const std::string line = only(launch_plan(order, facts)).shell_line;
  EXPECT_THAT(line, HasSubstr("\"$GYRE_PROGRAM\" run -n 3 -H 10.0.0.4:2,10.0.0.5:1 --ssh \"$GYRE_REMOTE_SHELL\""));
  EXPECT_THAT(line, HasSubstr(R"(bash -c './solver '\''a b'\''')"));
}

// mpirun's ranks, and a single process, would not have them.
TEST(LaunchPlan, gyre_run_starts_the_programs_that_want_keras_names_of_2018) {
  WorkOrder order = order_of(spec::HorovodSettings{{"train.py", "/opt/python"}, "", 2}, 2);
  order.job.environment_variables = {{"GYRE_KERAS_2018", "1"}};
  EXPECT_THAT(only(launch_plan(order, facts_of(order, Mpi::kOpenMpi))).shell_line,
              HasSubstr("\"$GYRE_PROGRAM\" run -n 2 -H 10.0.0.4:1,10.0.0.5:1 "));
  order.job.environment_variables = {{"GYRE_KERAS_2018", "0"}};
  EXPECT_THAT(only(launch_plan(order, facts_of(order, Mpi::kOpenMpi))).shell_line, HasSubstr("mpirun -n 2"));
  order = order_of(spec::CntkSettings{spec::PythonScript{"a.py", "/opt/python"}, "", 1}, 1);
  order.job.environment_variables = {{"GYRE_KERAS_2018", "1"}};
  EXPECT_THAT(only(launch_plan(order, facts_of(order, Mpi::kNone))).shell_line,
              HasSubstr("\"$GYRE_PROGRAM\" run -n 1 --horovod-compat -- bash -c"));
}

// Intel's and MPICH's mpiexec take the hosts as a list.
TEST(LaunchPlan, hydra_gets_the_host_list) {
  const std::string line = only(plan_of(spec::CustomMpiSettings{"./solver", 8}, 2, Mpi::kHydra)).shell_line;
  EXPECT_THAT(line, HasSubstr("-n 8 -ppn 4 -hosts \"$AZ_BATCH_HOST_LIST\""));
}

// Open MPI hands nothing to other nodes by itself; BatchAI issue 27 was exactly that.
TEST(LaunchPlan, the_jobs_variables_and_secrets_reach_all_ranks_by_name_alone) {
  WorkOrder order = order_of(spec::CustomMpiSettings{"./solver", 2}, 2);
  order.job.environment_variables = {{"EPOCHS", "5"}};
  order.job.secrets = {{"TOKEN", {"hunter2", std::nullopt}}};
  order.job.output_directories = {{"MODEL", "/out", ""}};
  const std::string line = only(launch_plan(order, facts_of(order, Mpi::kOpenMpi))).shell_line;
  for (const char* name : {"EPOCHS", "TOKEN", "AZ_BATCHAI_OUTPUT_MODEL"}) {
    EXPECT_THAT(line, HasSubstr(std::string("${") + name + "+-x " + name + "}"));
  }
  EXPECT_THAT(line, Not(HasSubstr("hunter2")));
}

TEST(LaunchPlan, cntk_and_caffe_start_their_own_programs) {
  const spec::CntkSettings one{spec::ConfigFile{"$AZ_BATCHAI_INPUT_CONFIG/a.cntk"}, "rootDir=x", 1};
  EXPECT_EQ(only(plan_of(one, 1)).shell_line, "cntk \"configFile=$AZ_BATCHAI_INPUT_CONFIG/a.cntk\" rootDir=x");
  const spec::CntkSettings two{spec::PythonScript{"a.py", std::nullopt}, "", std::nullopt};
  EXPECT_THAT(only(plan_of(two, 2, Mpi::kOpenMpi)).shell_line, HasSubstr("mpirun -n 2"));
  const spec::CaffeSettings caffe{spec::ConfigFile{"solver.prototxt"}, "", 2};
  EXPECT_THAT(only(plan_of(caffe, 1, Mpi::kOpenMpi)).shell_line, HasSubstr("caffe train \"--solver=solver.prototxt\""));
}

TEST(LaunchPlan, torch_tasks_are_numbered_over_the_nodes_and_meet_at_a_file_of_the_attempt) {
  const auto plans = plan_of(spec::PyTorchSettings{{"train.py", "python3"}, "", 3, spec::PyTorchBackend::kGloo}, 2);
  ASSERT_EQ(plans[0].processes.size(), 2U);
  ASSERT_EQ(plans[1].processes.size(), 1U);
  const ProcessPlan& last = plans[1].processes[0];
  EXPECT_EQ(last.variables.at("AZ_BATCHAI_TASK_INDEX"), "2");
  EXPECT_EQ(last.variables.at("AZ_BATCHAI_PYTORCH_INIT_METHOD"), "file://$AZ_BATCHAI_SHARED_JOB_TEMP/init-a1");
  EXPECT_EQ(last.variables.at("AZ_BATCHAI_PYTORCH_BACKEND"), "gloo");
  EXPECT_EQ(last.log_suffix, "-2");
  EXPECT_TRUE(plans[1].ranks);
  EXPECT_EQ(plans[1].first_rank, 2);
  EXPECT_EQ(plans[1].size, 3);
  EXPECT_EQ(plans[1].rendezvous_port, 2223);
}

TEST(LaunchPlan, caffe2_has_one_task_per_node) {
  const auto plans = plan_of(spec::Caffe2Settings{{"train.py", std::nullopt}, "--shards 2"}, 2);
  EXPECT_EQ(plans[1].processes.at(0).variables.at("AZ_BATCHAI_TASK_INDEX"), "1");
  EXPECT_EQ(plans[0].processes.at(0).log_suffix, "-0");
}

// Scripts that read TF_CONFIG themselves were written for what Batch AI's documentation shows.
TEST(LaunchPlan, tensorflow_roles_get_ports_indices_and_batch_ais_tf_config) {
  const spec::TensorFlowSettings settings{{"train.py", "python"}, "--job master", "--job worker", "--job ps", 3, 1};
  const auto plans = plan_of(settings, 2);
  ASSERT_EQ(plans[0].processes.size(), 3U);
  ASSERT_EQ(plans[1].processes.size(), 1U);
  const ProcessPlan& server = plans[0].processes[0];
  EXPECT_TRUE(server.server);
  EXPECT_EQ(server.log_suffix, "-ps-0");
  EXPECT_EQ(server.variables.at("AZ_BATCHAI_PS_HOSTS"), "10.0.0.4:2222");
  EXPECT_EQ(server.variables.at("AZ_BATCHAI_WORKER_HOSTS"), "10.0.0.4:2223,10.0.0.4:2224,10.0.0.5:2222");
  const ProcessPlan& last = plans[1].processes[0];
  EXPECT_EQ(last.log_suffix, "-wk-2");
  EXPECT_THAT(last.shell_line, HasSubstr("--job worker"));
  const auto config = nlohmann::json::parse(last.variables.at("TF_CONFIG"));
  EXPECT_EQ(config["cluster"], nlohmann::json({{"ps", {"10.0.0.4:2222"}},
                                               {"worker", {"10.0.0.4:2223", "10.0.0.4:2224", "10.0.0.5:2222"}}}));
  EXPECT_EQ(config["environment"], "cloud");
  const auto task_of = [](const ProcessPlan& process) {
    return nlohmann::json::parse(process.variables.at("TF_CONFIG"))["task"];
  };
  EXPECT_EQ(task_of(last), nlohmann::json({{"type", "worker"}, {"index", 2}}));
  EXPECT_EQ(task_of(plans[0].processes[1]), nlohmann::json({{"type", "master"}, {"index", 0}}));
  EXPECT_EQ(task_of(server), nlohmann::json({{"type", "ps"}, {"index", 0}}));
  EXPECT_THAT(plans[0].processes[1].shell_line, HasSubstr("--job master"));
}

TEST(LaunchPlan, a_gyre_program_runs_under_gyre_run_word_by_word) {
  const spec::GyreSettings settings{{"python", "my train.py", "$AZ_BATCHAI_JOB_TEMP/x", "$(date) \"a\" `b`"}, 2, 1};
  const std::string line = only(plan_of(settings, 2)).shell_line;
  EXPECT_THAT(line, HasSubstr("run -n 4 -H 10.0.0.4:2,10.0.0.5:2"));
  EXPECT_THAT(line, HasSubstr(R"("python" "my train.py" "${AZ_BATCHAI_JOB_TEMP}/x" "\$(date) \"a\" \`b\`")"));
  EXPECT_THAT(line, HasSubstr("left=1; until "));
}

TEST(LaunchPlan, parameter_servers_of_a_gyre_program_are_those_of_gyre_run) {
  const spec::GyreSettings settings{.program = {"train"}, .processes_per_node = 2, .servers = 3};
  EXPECT_EQ(only(plan_of(settings, 1)).shell_line,
            "\"$GYRE_PROGRAM\" run -n 2 --servers 3 --horovod-compat -- \"train\"");
  EXPECT_EQ(only(plan_of(settings, 2)).shell_line,
            "\"$GYRE_PROGRAM\" run -n 4 -H 10.0.0.4:2,10.0.0.5:2 --ssh \"$GYRE_REMOTE_SHELL\" --servers 3 "
            "--horovod-compat -- \"train\"");
}

TEST(LaunchPlan, words_of_a_gyre_program_reach_it_as_they_are_but_for_the_jobs_own_variables) {
  WorkOrder order = order_of(spec::GyreSettings{{"awk", "$i ${i} $HOME $LR ${TOKEN} $$ ${LR:-1}"}, 1, 0}, 1);
  order.job.environment_variables = {{"LR", "0.1"}};
  order.job.secrets = {{"TOKEN", {"hunter2", std::nullopt}}};
  EXPECT_THAT(only(launch_plan(order, facts_of(order))).shell_line,
              HasSubstr(R"("awk" "\$i \${i} \$HOME ${LR} ${TOKEN} \$\$ \${LR:-1}")"));
}

// `bash -c 'for i in 1 2; do echo $i; done'` printed nothing: the node's shell had replaced $i before.
TEST(LaunchPlan, the_line_of_a_shell_is_left_to_that_shell) {
  WorkOrder order =
      order_of(spec::GyreSettings{{"/bin/bash", "-c", "for i in 1; do echo $i '$LR'; done", "$LR"}, 1, 0}, 1);
  order.job.environment_variables = {{"LR", "`date`"}};
  EXPECT_THAT(only(launch_plan(order, facts_of(order))).shell_line,
              HasSubstr(R"("/bin/bash" "-c" 'for i in 1; do echo $i '\''$LR'\''; done' "${LR}")"));
}

// `gyre run --cluster` promises that all words arrive as typed.
TEST(LaunchPlan, an_escaped_dollar_stays_one) {
  WorkOrder order = order_of(spec::GyreSettings{{"x", "${$}LR ${$}{LR} $LR ${$} ${$"}, 1, 0}, 1);
  order.job.environment_variables = {{"LR", "1"}};
  EXPECT_THAT(only(launch_plan(order, facts_of(order))).shell_line, HasSubstr(R"("x" "\$LR \${LR} ${LR} \$ \${\$")"));
}

}  // namespace
}  // namespace gyre::jobs::node
