// Job files in the forms in which Batch AI's users wrote them must be read as they meant it, and without noise.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/parse_test_support.h"

namespace gyre::jobs::spec {
namespace {

using testing::HasSubstr;

std::string article() {
  std::stringstream text;
  text << std::ifstream(GYRE_TEST_DATA "/batchai/job.json").rdbuf();
  return text.str();
}

TEST(recipes, the_job_of_the_article) {
  const JobSpec job = clean_job(article());
  EXPECT_EQ(parse_job(article()).version, ApiVersion::k2017_09_01_preview);
  JobSpec expected;
  const std::string storage = "$AZ_BATCHAI_MOUNT_ROOT/external/storagedir";
  expected.node_count = 2;
  expected.environment_variables = {{"NUM_NODES", "2"},
                                    {"PROCESSES_PER_NODE", "4"},
                                    {"HOROVOD_TIMELINE", "$AZ_BATCHAI_OUTPUT_TIMELINE/timeline.json"}};
  expected.toolkit = CustomToolkitSettings{"$AZ_BATCHAI_INPUT_SCRIPTS/run-cifar10.sh"};
  expected.std_out_err_path_prefix = storage;
  expected.output_directories = {{"MODEL", storage + "/horovod", "models"},
                                 {"TIMELINE", storage + "/horovod", "timelines"}};
  expected.input_directories = {{"DATASET", storage + "/horovod/data/cifar-10-batches-py"},
                                {"SCRIPTS", storage + "/horovod"}};
  expected.container_settings = ContainerSettings{"tensorflow/tensorflow:1.6.0-gpu", {}, {}, {}};
  expected.job_preparation_command_line = "$AZ_BATCHAI_INPUT_SCRIPTS/job-prep.sh";
  EXPECT_EQ(job, expected);
}

// The files of Batch AI's recipes, by which of the properties they have; the texts are our own.

/// Where a recipe's shares are named.
enum class Shares {
  kOfCluster,       ///< Mounted by the cluster, below $AZ_BATCHAI_MOUNT_ROOT.
  kOfJob,           ///< In the file, without accountName and credentials.
  kOfJobWithBlobs,  ///< And a container of blobs, with accountName, without credentials.
};

/// A directory for the job's output.
enum class Output { kNone, kWithSuffix, kWithoutSuffix };

struct Recipe {
  std::string name;
  std::string_view schema;  ///< "" where the file has none.
  int nodes = 1;
  std::string toolkit;
  Shares shares = Shares::kOfCluster;
  int inputs = 0;
  Output output = Output::kNone;
  bool container = true;
  bool preparation = false;
  // What it means.
  std::string_view tool;
  int processes = 1;
  std::size_t warnings = 0;
};

constexpr std::string_view kPreview = "2017-09-01-preview/job.json";
constexpr std::string_view kOfCntk = "2018-03-01/cntk.json";  // The schema of one toolkit.
constexpr std::string_view kNewest = "2018-05-01/job.json";

const Recipe kRecipes[] = {
    {"scoring_under_an_mpirun_of_its_own", kPreview, 2,
     R"("customToolkitSettings": {"commandLine": "mpirun --hostfile $AZ_BATCHAI_MPI_HOST_FILE python $AZ_BATCHAI_INPUT_0/x.py"})",
     Shares::kOfCluster, 3, Output::kWithoutSuffix, true, true, "custom", 1},
    {"brain_script", kPreview, 1,
     R"("cntkSettings": {"configFilePath": "$AZ_BATCHAI_INPUT_1/x.cntk", "commandLineArgs": "data=$AZ_BATCHAI_INPUT_0"})",
     Shares::kOfCluster, 2, Output::kWithSuffix, true, false, "cntk", 1},
    {"brain_script_on_two_nodes", kPreview, 2,
     R"("cntkSettings": {"configFilePath": "$AZ_BATCHAI_INPUT_1/x.cntk", "commandLineArgs": "out=$AZ_BATCHAI_OUTPUT_MODEL"})",
     Shares::kOfCluster, 2, Output::kWithSuffix, true, false, "cntk", 2},
    {"cntk_in_python_on_the_host", kOfCntk, 1,
     R"("cntkSettings": {"pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/x.py", "commandLineArgs": "-a"})",
     Shares::kOfJobWithBlobs, 0, Output::kWithoutSuffix, false, false, "cntk", 1},
    {"cntk_on_two_nodes", kNewest, 2,
     R"("cntkSettings": {"pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/x.py",
        "commandLineArgs": "--data $AZ_BATCHAI_JOB_TEMP", "processCount": 2})",
     Shares::kOfJob, 0, Output::kWithoutSuffix, true, true, "cntk", 2},
    {"cntk_with_four_processes_on_each_node", kNewest, 2,
     R"("cntkSettings": {"pythonScriptFilePath": "/x.py", "commandLineArgs": "-n 5", "processCount": 8})",
     Shares::kOfJob, 0, Output::kWithoutSuffix, true, true, "cntk", 8},
    {"caffe2", kNewest, 2,
     R"("caffe2Settings": {"pythonScriptFilePath": "/x.py",
        "commandLineArgs": "--shard $AZ_BATCHAI_TASK_INDEX --store $AZ_BATCHAI_SHARED_JOB_TEMP"})",
     Shares::kOfJobWithBlobs, 0, Output::kNone, true, false, "caffe2", 2},
    {"chainer", kNewest, 2,
     R"("chainerSettings": {"pythonScriptFilePath": "/x.py", "commandLineArgs": "-o $AZ_BATCHAI_OUTPUT_MODEL"})",
     Shares::kOfJob, 0, Output::kWithoutSuffix, true, false, "chainer", 2},
    {"chainer_with_four_processes_on_each_node", kNewest, 2,
     R"("chainerSettings": {"pythonScriptFilePath": "/x.py", "commandLineArgs": "-g", "processCount": 8})",
     Shares::kOfJob, 0, Output::kWithoutSuffix, true, true, "chainer", 8},
    {"horovod_with_a_program_that_the_preparation_fetches", kNewest, 2,
     R"("horovodSettings": {"pythonScriptFilePath": "$AZ_BATCHAI_JOB_TEMP/x.py", "commandLineArgs": "--model m"})",
     Shares::kOfJob, 0, Output::kNone, true, true, "horovod", 2},
    {"horovod_with_an_output", kNewest, 2, R"("horovodSettings": {"pythonScriptFilePath": "/x.py"})", Shares::kOfJob, 0,
     Output::kWithSuffix, true, true, "horovod", 2},
    {"horovod_without_an_output", kNewest, 2, R"("horovodSettings": {"pythonScriptFilePath": "/x.py"})", Shares::kOfJob,
     0, Output::kNone, true, true, "horovod", 2},
    {"keras_over_tensorflow", kNewest, 1, R"("tensorFlowSettings": {"pythonScriptFilePath": "/x.py"})", Shares::kOfJob,
     0, Output::kNone, true, true, "tensorflow", 1},
    {"keras_over_cntk", kNewest, 1, R"("cntkSettings": {"pythonScriptFilePath": "/x.py"})", Shares::kOfJob, 0,
     Output::kNone, true, false, "cntk", 1},
    {"pytorch_over_gloo", kNewest, 2,
     R"("pyTorchSettings": {"pythonScriptFilePath": "/x.py", "communicationBackend": "gloo", "commandLineArgs":
        "$AZ_BATCHAI_PYTORCH_BACKEND $AZ_BATCHAI_PYTORCH_INIT_METHOD $AZ_BATCHAI_TASK_INDEX"})",
     Shares::kOfJob, 0, Output::kNone, true, true, "pytorch", 2},
    {"distributed_tensorflow_with_an_input_that_it_does_not_have", kNewest, 2,
     R"("tensorFlowSettings": {"parameterServerCount": 1, "workerCount": 2, "pythonScriptFilePath": "/x.py",
        "masterCommandLineArgs": "--ps_hosts=$AZ_BATCHAI_PS_HOSTS --data_dir=$AZ_BATCHAI_INPUT_DATASET",
        "workerCommandLineArgs": "--worker_hosts=$AZ_BATCHAI_WORKER_HOSTS --data_dir=$AZ_BATCHAI_INPUT_DATASET",
        "parameterServerCommandLineArgs": "--task_index=$AZ_BATCHAI_TASK_INDEX"})",
     Shares::kOfJobWithBlobs, 0, Output::kWithSuffix, true, false, "tensorflow", 3, 2},
    {"tensorflow", kNewest, 1, R"("tensorFlowSettings": {"pythonScriptFilePath": "/x.py"})", Shares::kOfJob, 0,
     Output::kNone, true, false, "tensorflow", 1},
    // Earlier editions of some of them.
    {"without_a_schema", "", 1,
     R"("tensorFlowSettings": {"pythonScriptFilePath": "/x.py", "masterCommandLineArgs": "-p"})", Shares::kOfCluster, 1,
     Output::kNone, true, false, "tensorflow", 1},
    {"keras_over_tensorflow_without_arguments", kPreview, 1,
     R"("tensorFlowSettings": {"pythonScriptFilePath": "/x.py"})", Shares::kOfCluster, 1, Output::kNone, true, true,
     "tensorflow", 1, 1},
    {"chainer_with_the_arguments_of_tensorflow", kPreview, 2,
     R"("chainerSettings": {"pythonScriptFilePath": "/x.py", "masterCommandLineArgs": "-g"})", Shares::kOfCluster, 1,
     Output::kWithSuffix, true, false, "chainer", 2, 1},
    {"cntk_with_the_python_name_of_a_property", "", 2,
     R"("cntkSettings": {"pythonScriptFilePath": "/x.py", "process_count": 2})", Shares::kOfCluster, 1,
     Output::kWithSuffix, true, true, "cntk", 2, 1},
};

std::string file_of(const Recipe& recipe) {
  const bool of_job = recipe.shares != Shares::kOfCluster;
  const std::string root = of_job ? "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs" : "$AZ_BATCHAI_MOUNT_ROOT/external";
  const std::string account = "<AZURE_BATCHAI_STORAGE_ACCOUNT>";
  std::string text = "{";
  if (!recipe.schema.empty()) text += fmt::format(R"("$schema": "https://x/schemas/{}", )", recipe.schema);
  text += fmt::format(R"("properties": {{"nodeCount": {}, {}, "stdOutErrPathPrefix": "{}")", recipe.nodes,
                      recipe.toolkit, root);
  std::string inputs;
  for (int i = 0; i < recipe.inputs; ++i) {
    inputs += fmt::format(R"({}{{"id": "{}", "path": "{}/in"}})", i == 0 ? "" : ", ", i, root);
  }
  if (recipe.inputs > 0) text += fmt::format(R"(, "inputDirectories": [{}])", inputs);
  if (recipe.output != Output::kNone) {
    text += fmt::format(R"(, "outputDirectories": [{{"id": "MODEL", "pathPrefix": "{}"{}}}])", root,
                        recipe.output == Output::kWithSuffix ? R"(, "pathSuffix": "Models")" : "");
  }
  if (of_job) {
    const auto share = [&](const char* name) {
      return fmt::format(R"({{"azureFileUrl": "https://{}.file.core.windows.net/{}", "relativeMountPath": "{}"}})",
                         account, name, name);
    };
    text += fmt::format(R"(, "mountVolumes": {{"azureFileShares": [{}, {}])", share("logs"), share("scripts"));
    if (recipe.shares == Shares::kOfJobWithBlobs) {
      text += fmt::format(
          R"(, "azureBlobFileSystems": [{{"accountName": "{}", "containerName": "d", "relativeMountPath": "d"}}])",
          account);
    }
    text += "}";
  }
  if (recipe.preparation) text += R"(, "jobPreparation": {"commandLine": "apt-get install -y x"})";
  if (recipe.container) text += R"(, "containerSettings": {"imageSourceRegistry": {"image": "team/image"}})";
  return text + "}}";
}

class EachRecipe : public testing::TestWithParam<Recipe> {};

TEST_P(EachRecipe, is_read_as_its_client_sent_it) {
  const Recipe& recipe = GetParam();
  ParseOptions options;
  options.storage_account = "acc";
  options.storage_key = "key";
  const std::string file = file_of(recipe);
  std::vector<std::string> warnings;
  const JobSpec job = tolerated_job(file, warnings, options);
  EXPECT_EQ(warnings.size(), recipe.warnings) << testing::PrintToString(warnings);
  EXPECT_EQ(tool_type(job.toolkit), recipe.tool);
  EXPECT_EQ(process_count(job), recipe.processes);
  EXPECT_EQ(job.container_settings.has_value(), recipe.container);
  EXPECT_EQ(job.job_preparation_command_line.has_value(), recipe.preparation);
  EXPECT_EQ(job.mount_volumes.empty(), recipe.shares == Shares::kOfCluster);
  for (const AzureFileShare& share : job.mount_volumes.azure_file_shares) {
    EXPECT_EQ(share.account_name, "acc");
    EXPECT_EQ(share.account_key, (SecretValue{"key", {}}));
  }
  for (const AzureBlobFileSystem& blobs : job.mount_volumes.azure_blob_file_systems) {
    EXPECT_EQ(blobs.account_name, "acc");
    EXPECT_EQ(blobs.account_key, (SecretValue{"key", {}}));
  }
}

INSTANTIATE_TEST_SUITE_P(recipes, EachRecipe, testing::ValuesIn(kRecipes),
                         [](const auto& each) { return each.param.name; });

TEST(recipes, an_account_that_the_share_does_not_name_is_taken_from_its_address_or_missing) {
  const auto account = [](const std::string& fields) {
    const auto parsed =
        parse_job(job_file(R"("mountVolumes": {"azureFileShares": [{)" + fields + R"(, "relativeMountPath": "m"}]})"));
    return parsed.spec ? parsed.spec->mount_volumes.azure_file_shares.front().account_name
                       : testing::PrintToString(problems_of(parsed));
  };
  EXPECT_EQ(account(R"("azureFileUrl": "https://mine.file.core.windows.net/s")"), "mine");
  EXPECT_EQ(account(R"("azureFileUrl": "https://mine.file.core.windows.net/s", "accountName": null)"), "mine");
  EXPECT_EQ(account(R"("azureFileUrl": "https://mine.file.core.windows.net/s", "accountName": "other")"), "other");
  // Without the variable of that name the placeholder stays, as in a file that names it.
  EXPECT_EQ(account(R"("azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/s")"),
            "<AZURE_BATCHAI_STORAGE_ACCOUNT>");
  for (const char* address : {"https://mine/s", "mine.file.core.windows.net/s", "https://", "https://.x/s"}) {
    EXPECT_THAT(account(fmt::format(R"("azureFileUrl": "{}")", address)),
                HasSubstr("azureFileShares/0/accountName is missing, and azureFileUrl does not name an account as "
                          "https://ACCOUNT.file.core.windows.net/SHARE does"))
        << address;
  }
  EXPECT_EQ(account(R"("accountName": "a")"),
            testing::PrintToString(
                std::vector<std::string>{"1: /properties/mountVolumes/azureFileShares/0/azureFileUrl is missing"}));
}

TEST(recipes, mpirun_by_hand_over_the_hosts) {
  const JobSpec job = clean_job(R"({
    "$schema": "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2017-09-01-preview/job.json",
    "properties": {
      "nodeCount": 2,
      "customToolkitSettings": {"commandLine": "mpirun -n 8 -ppn 4 -hosts $AZ_BATCH_HOST_LIST -env I_MPI_FABRICS=dapl python x.py"},
      "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external",
      "environmentVariables": [{"name": "PATH", "value": "/opt/bin:$PATH"}]}})");
  EXPECT_EQ(tool_type(job.toolkit), "custom");
}

}  // namespace
}  // namespace gyre::jobs::spec
