// The variables are Batch AI's contract with scripts: a missing or wrong one breaks jobs that nobody will touch again.
#include "gyre/jobs/node/job_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/spec/variable_references.h"

namespace gyre::jobs::node {

using orders::WorkOrder;

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

WorkOrder two_nodes() {
  WorkOrder order;
  order.attempt = "a1";
  order.job_name = "train";
  order.cluster_name = "pool";
  order.path_segment = "s/g/jobs/train/uuid";
  order.shared_folder = "/shared";
  order.nodes = {{"n0", "10.0.0.4", 8, 2}, {"n1", "10.0.0.5", 8, 2}};
  order.job.node_count = 2;
  order.job.std_out_err_path_prefix = "$AZ_BATCHAI_MOUNT_ROOT/external/";
  return order;
}

JobEnvironment environment_of(const WorkOrder& order, const Variables& of_process = {}) {
  return job_environment(order, NodeFolders("/node"), {{"PATH", "/bin"}}, of_process);
}

TEST(JobEnvironment, places_are_told_as_batch_ai_told_them) {
  WorkOrder order = two_nodes();
  order.node = 1;
  const Variables variables = environment_of(order).variables;
  EXPECT_EQ(variables.at("AZ_BATCHAI_MOUNT_ROOT"), "/node/mounts");
  EXPECT_EQ(variables.at("AZ_BATCHAI_JOB_TEMP_DIR"), "/node/jobs");
  EXPECT_EQ(variables.at("AZ_BATCHAI_JOB_TEMP"), "/node/jobs/train");
  EXPECT_EQ(variables.at("AZ_BATCHAI_SHARED_JOB_TEMP"), "/shared");
  EXPECT_EQ(variables.at("AZ_BATCHAI_STDOUTERR_DIR"), "/node/mounts/external/s/g/jobs/train/uuid/stdouterr");
  EXPECT_EQ(variables.at("AZ_BATCH_HOST_LIST"), "10.0.0.4,10.0.0.5");
  EXPECT_EQ(variables.at("AZ_BATCH_NODE_ID"), "n1");
  EXPECT_EQ(variables.at("AZ_BATCH_IS_CURRENT_NODE_MASTER"), "false");
  EXPECT_EQ(variables.at("AZ_BATCHAI_NUM_GPUS"), "2");
  EXPECT_EQ(variables.at("AZ_BATCHAI_NUM_GPUS_PER_NODE"), "2");
  EXPECT_EQ(variables.at("PATH"), "/bin");
}

TEST(JobEnvironment, a_node_with_gpus_of_its_own_shows_them_alone) {
  WorkOrder order = two_nodes();
  const Variables base = {{"CUDA_VISIBLE_DEVICES", "GPU-x,GPU-a,GPU-b"}};
  const auto mask_under = [&] {
    return job_environment(order, NodeFolders("/node"), base).variables.at("CUDA_VISIBLE_DEVICES");
  };
  EXPECT_EQ(mask_under(), "GPU-x,GPU-a,GPU-b");
  order.nodes[0].devices = {{"GPU-a", "GPU-b"}};
  EXPECT_EQ(mask_under(), "GPU-a,GPU-b");
  order.nodes[0].devices.emplace();
  EXPECT_EQ(mask_under(), "");
}

// Files of jobs that had their machine for themselves say "0", and must not get another job's GPU.
TEST(JobEnvironment, what_a_job_chooses_counts_among_its_own_gpus) {
  WorkOrder order = two_nodes();
  order.nodes[0].devices = {{"GPU-c", "GPU-d"}};
  const auto chosen = [&](const std::string& mask) {
    order.job.environment_variables = {{"CUDA_VISIBLE_DEVICES", mask}};
    return environment_of(order);
  };
  EXPECT_EQ(chosen("0").variables.at("CUDA_VISIBLE_DEVICES"), "GPU-c");
  EXPECT_EQ(chosen("1, 0,-1").variables.at("CUDA_VISIBLE_DEVICES"), "GPU-d,GPU-c");
  EXPECT_EQ(chosen("GPU-d").variables.at("CUDA_VISIBLE_DEVICES"), "GPU-d");
  for (const char* none : {"", "-1"}) EXPECT_EQ(chosen(none).variables.at("CUDA_VISIBLE_DEVICES"), "") << none;
  EXPECT_THAT(chosen("$CUDA_VISIBLE_DEVICES").warnings, IsEmpty());
  for (const char* others : {"2", "GPU-a", "x", "99999999999999999999"}) {
    const JobEnvironment environment = chosen(std::string("1,") + others + ",0");
    EXPECT_EQ(environment.variables.at("CUDA_VISIBLE_DEVICES"), "GPU-d") << others;
    EXPECT_THAT(environment.warnings, ElementsAre(HasSubstr(others)));
  }
  // With numbers as names, too: "0" is a place.
  order.nodes[0].devices = {{"2", "3"}};
  EXPECT_EQ(chosen("0").variables.at("CUDA_VISIBLE_DEVICES"), "2");
}

// A launcher may hand the first node's paths, and its folder, to the ranks of the others.
TEST(JobEnvironment, an_order_may_give_the_jobs_folders_the_same_paths_on_all_nodes) {
  WorkOrder order = two_nodes();
  order.jobs_root = "/all/jobs";
  order.job.std_out_err_path_prefix = "$AZ_BATCHAI_JOB_TEMP_DIR";
  const JobEnvironment environment = environment_of(order);
  EXPECT_EQ(environment.variables.at("AZ_BATCHAI_JOB_TEMP_DIR"), "/all/jobs");
  EXPECT_EQ(environment.variables.at("AZ_BATCHAI_JOB_TEMP"), "/all/jobs/train");
  EXPECT_EQ(environment.variables.at("AZ_BATCHAI_JOB_WORK_DIR"), "/all/jobs/train");
  EXPECT_EQ(environment.variables.at("AZ_BATCHAI_MPI_HOST_FILE"), "/all/jobs/train/hostfile");
  order.code_sha256 = std::string(64, '0');
  EXPECT_EQ(environment_of(order).variables.at("AZ_BATCHAI_JOB_WORK_DIR"), "/all/jobs/train/code");
  // Those outside find the logs where the node really has them.
  const MountPlan mounts = plan_mounts(order, NodeFolders("/node"));
  EXPECT_EQ(resolved(environment.log_folder, mounts), "/node/jobs/s/g/jobs/train/uuid/stdouterr");
}

// They use the same names below /tmp: with a job's own mpirun line one start in eight failed, with a folder that exists
// or with a crash.
TEST(JobEnvironment, open_mpis_daemons_of_one_machine_get_a_folder_each) {
  WorkOrder order = two_nodes();
  const char* name = "OMPI_MCA_orte_launch_agent";
  EXPECT_FALSE(environment_of(order).variables.contains(name));
  for (auto& node : order.nodes) node.address = "127.0.0.2";
  EXPECT_EQ(environment_of(order).variables.at(name), R"(orted --mca orte_tmpdir_base "$AZ_BATCHAI_JOB_TEMP")");
  order.job.environment_variables = {{name, "orted"}};
  EXPECT_EQ(environment_of(order).variables.at(name), "orted");
}

// The sample of article 000 names its timeline by an output directory.
TEST(JobEnvironment, values_of_variables_refer_to_outputs_and_to_each_other) {
  WorkOrder order = two_nodes();
  order.job.output_directories = {{"TIMELINE", "$AZ_BATCHAI_MOUNT_ROOT/external", "timelines"}};
  order.job.environment_variables = {{"HOROVOD_TIMELINE", "$AZ_BATCHAI_OUTPUT_TIMELINE/t.json"},
                                     {"COPY", "${HOROVOD_TIMELINE}.gz"},
                                     {"PATH", "/opt/bin:$PATH"}};
  const JobEnvironment environment = environment_of(order);
  const std::string folder = "/node/mounts/external/s/g/jobs/train/uuid/outputs/timelines";
  EXPECT_EQ(environment.variables.at("COPY"), folder + "/t.json.gz");
  EXPECT_EQ(environment.variables.at("PATH"), "/opt/bin:/bin");
  ASSERT_EQ(environment.outputs.size(), 1U);
  EXPECT_EQ(environment.outputs[0].path, folder);
  EXPECT_THAT(environment.warnings, IsEmpty());
}

// "pa$word", given to `gyre run --cluster --env`, arrived as "pa".
TEST(JobEnvironment, an_escaped_dollar_stays_one) {
  WorkOrder order = two_nodes();
  order.job.environment_variables = {{"A", "1"}, {"PASS", spec::with_escaped_dollars("pa$word ${A} $A $$ ${$}")}};
  const JobEnvironment environment = environment_of(order);
  EXPECT_EQ(environment.variables.at("PASS"), "pa$word ${A} $A $$ ${$}");
  EXPECT_THAT(environment.warnings, IsEmpty());
}

TEST(JobEnvironment, a_name_without_a_value_is_a_warning_that_names_it) {
  WorkOrder order = two_nodes();
  order.job.input_directories = {{"A", "$AZ_BATCHAI_INPUT_DATASET/x"}};
  const JobEnvironment environment = environment_of(order);
  EXPECT_EQ(environment.variables.at("AZ_BATCHAI_INPUT_A"), "/x");
  EXPECT_THAT(environment.warnings, ElementsAre(HasSubstr("input directory A refers to $AZ_BATCHAI_INPUT_DATASET")));
}

TEST(JobEnvironment, logs_need_an_absolute_path) {
  WorkOrder order = two_nodes();
  order.job.std_out_err_path_prefix = "$NOWHERE";
  try {
    static_cast<void>(environment_of(order));
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("stdOutErrPathPrefix '$NOWHERE'"));
  }
}

// A password with a dollar in it must arrive as it is.
TEST(JobEnvironment, secrets_are_not_expanded) {
  WorkOrder order = two_nodes();
  order.job.secrets = {{"PASSWORD", {"pa$PATH", std::nullopt}}};
  EXPECT_EQ(environment_of(order).variables.at("PASSWORD"), "pa$PATH");
}

// The same Keras script runs over CNTK and over TensorFlow, and asks for neither.
TEST(JobEnvironment, keras_computes_with_the_jobs_toolkit) {
  const spec::PythonScript script{"/keras.py", {}};
  const auto backend = [](spec::Toolkit toolkit) {
    WorkOrder order = two_nodes();
    order.job.toolkit = std::move(toolkit);
    const Variables variables = environment_of(order).variables;
    return variables.contains("KERAS_BACKEND") ? variables.at("KERAS_BACKEND") : "none";
  };
  EXPECT_EQ(backend(spec::CntkSettings{script, "", {}}), "cntk");
  EXPECT_EQ(backend(spec::TensorFlowSettings{script, "", "", "", {}, {}}), "tensorflow");
  EXPECT_EQ(backend(spec::CntkSettings{spec::ConfigFile{"/a.cntk"}, "", {}}), "none");
  EXPECT_EQ(backend(spec::PyTorchSettings{script, "", {}, {}}), "none");
  WorkOrder order = two_nodes();
  order.job.toolkit = spec::CntkSettings{script, "", {}};
  order.job.environment_variables = {{"KERAS_BACKEND", "theano"}};
  EXPECT_EQ(environment_of(order).variables.at("KERAS_BACKEND"), "theano");
}

TEST(JobEnvironment, a_second_attempt_finds_what_the_first_has_written) {
  WorkOrder order = two_nodes();
  order.job.output_directories = {{"MODEL", "/share", ""}};
  EXPECT_EQ(environment_of(order).variables.at("AZ_BATCHAI_PREV_OUTPUT_MODEL"), "");
  order.attempt_number = 2;
  EXPECT_EQ(environment_of(order).variables.at("AZ_BATCHAI_PREV_OUTPUT_MODEL"), "/share/s/g/jobs/train/uuid/outputs");
}

TEST(JobEnvironment, the_host_file_has_a_line_for_each_node) {
  EXPECT_EQ(mpi_host_file(two_nodes(), 3), "10.0.0.4 slots=2 max_slots=8\n10.0.0.5 slots=1 max_slots=8\n");
  EXPECT_EQ(mpi_host_file(two_nodes(), 0), "10.0.0.4 slots=2 max_slots=8\n10.0.0.5 slots=2 max_slots=8\n");
}

TEST(JobEnvironment, secrets_of_job_setup_and_mounts_are_known_to_be_hidden) {
  WorkOrder order = two_nodes();
  order.job.secrets = {{"A", {"first-secret", std::nullopt}}, {"B", {"x", std::nullopt}}};
  order.cluster.mount_volumes.azure_file_shares.push_back({"account", "url", "path", {"the-key", std::nullopt}});
  EXPECT_THAT(secret_values(order), ElementsAre("first-secret", "the-key"));
}

}  // namespace
}  // namespace gyre::jobs::node
