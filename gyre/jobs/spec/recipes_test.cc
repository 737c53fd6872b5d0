// Job files in the forms in which Batch AI's users wrote them must be read as they meant it, and without noise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/parse_test_support.h"

namespace gyre::jobs::spec {
namespace {

using testing::ElementsAre;

constexpr std::string_view kArticle = R"({
    "$schema": "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2017-09-01-preview/job.json",
    "properties": {
        "nodeCount": 2,
        "environmentVariables": [
            {
                "name": "NUM_NODES",
                "value": "2"
            },
            {
                "name": "PROCESSES_PER_NODE",
                "value": "4"
            },
            {
                "name": "HOROVOD_TIMELINE",
                "value": "$AZ_BATCHAI_OUTPUT_TIMELINE/timeline.json"
            }
        ],
        "customToolkitSettings": {
            "commandLine": "$AZ_BATCHAI_INPUT_SCRIPTS/run-cifar10.sh"
        },
        "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external/storagedir",
        "outputDirectories": [
            {
                "id": "MODEL",
                "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external/storagedir/horovod",
                "pathSuffix": "models"
            },
            {
                "id": "TIMELINE",
                "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external/storagedir/horovod",
                "pathSuffix": "timelines"
            }
        ],
        "inputDirectories": [
            {
                "id": "DATASET",
                "path": "$AZ_BATCHAI_MOUNT_ROOT/external/storagedir/horovod/data/cifar-10-batches-py"
            },
            {
                "id": "SCRIPTS",
                "path": "$AZ_BATCHAI_MOUNT_ROOT/external/storagedir/horovod"
            }
        ],
        "containerSettings": {
            "imageSourceRegistry": {
                "image": "tensorflow/tensorflow:1.6.0-gpu"
            }
        },
        "jobPreparation": {
            "commandLine": "$AZ_BATCHAI_INPUT_SCRIPTS/job-prep.sh"
        }
    }
})";

TEST(recipes, the_job_of_the_article) {
  const JobSpec job = clean_job(kArticle);
  EXPECT_EQ(parse_job(kArticle).version, ApiVersion::k2017_09_01_preview);
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

/// A file of the newest version with a share mounted for the job, as the recipes have it.
std::string recipe(int nodes, const std::string& rest) {
  return R"({"$schema": "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2018-05-01/job.json",
    "properties": {"nodeCount": )" +
         std::to_string(nodes) + R"(,
      "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs",
      "inputDirectories": [{"id": "SCRIPT", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts"}],
      "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs", "pathSuffix": "Models"}],
      "mountVolumes": {"azureFileShares": [
        {"azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/logs",
         "accountName": "<AZURE_BATCHAI_STORAGE_ACCOUNT>", "relativeMountPath": "logs"},
        {"azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/scripts",
         "accountName": "<AZURE_BATCHAI_STORAGE_ACCOUNT>", "relativeMountPath": "scripts"}]},
      "containerSettings": {"imageSourceRegistry": {"image": "team/image"}}, )" +
         rest + "}}";
}

TEST(recipes, tensorflow_on_one_node) {
  const JobSpec job = clean_job(recipe(1, R"("tensorFlowSettings": {
    "pythonScriptFilePath": "$AZ_BATCHAI_INPUT_SCRIPT/convolutional.py", "masterCommandLineArgs": "-p"})"));
  EXPECT_EQ(process_count(job), 1);
  EXPECT_EQ(std::get<TensorFlowSettings>(job.toolkit).python.script_file_path,
            "$AZ_BATCHAI_INPUT_SCRIPT/convolutional.py");
}

TEST(recipes, distributed_tensorflow_refers_to_an_input_that_it_does_not_have) {
  std::vector<std::string> warnings;
  const JobSpec job = tolerated_job(recipe(2, R"("tensorFlowSettings": {"parameterServerCount": 1, "workerCount": 2,
    "pythonScriptFilePath": "$AZ_BATCHAI_INPUT_SCRIPT/mnist_replica.py",
    "masterCommandLineArgs": "--job_name=worker --ps_hosts=$AZ_BATCHAI_PS_HOSTS --task_index=$AZ_BATCHAI_TASK_INDEX",
    "workerCommandLineArgs": "--worker_hosts=$AZ_BATCHAI_WORKER_HOSTS --data_dir=$AZ_BATCHAI_INPUT_DATASET",
    "parameterServerCommandLineArgs": "--job_name=ps --train_dir=$AZ_BATCHAI_OUTPUT_MODEL"})"),
                                    warnings);
  EXPECT_EQ(worker_count(std::get<TensorFlowSettings>(job.toolkit), 2), 2);
  EXPECT_EQ(process_count(job), 3);
  EXPECT_THAT(warnings,
              ElementsAre("14: warning: /properties/tensorFlowSettings/workerCommandLineArgs refers to "
                          "AZ_BATCHAI_INPUT_DATASET, which this job does not have and which will be empty; it "
                          "has AZ_BATCHAI_INPUT_SCRIPT"));
}

TEST(recipes, pytorch_over_gloo) {
  const JobSpec job = clean_job(recipe(2, R"("pyTorchSettings": {
    "pythonScriptFilePath": "$AZ_BATCHAI_INPUT_SCRIPT/mnist_trainer.py", "communicationBackend": "gloo",
    "commandLineArgs": "--init $AZ_BATCHAI_PYTORCH_INIT_METHOD --rank $AZ_BATCHAI_TASK_INDEX"})"));
  EXPECT_EQ(std::get<PyTorchSettings>(job.toolkit).communication_backend, PyTorchBackend::kGloo);
  EXPECT_EQ(process_count(job), 2);
}

TEST(recipes, horovod_installs_its_mpi_first) {
  const JobSpec job = clean_job(recipe(2, R"(
    "jobPreparation": {"commandLine": "apt update; apt install mpi-default-dev -y; pip install horovod"},
    "horovodSettings": {"pythonScriptFilePath": "$AZ_BATCHAI_INPUT_SCRIPT/mnist.py", "processCount": 8,
                        "commandLineArgs": "--dir $AZ_BATCHAI_OUTPUT_MODEL"})"));
  EXPECT_EQ(process_count(job), 8);
  EXPECT_TRUE(job.job_preparation_command_line.has_value());
}

TEST(recipes, chainer_caffe2_and_scoring_over_mpi) {
  EXPECT_EQ(tool_type(clean_job(recipe(2, R"("chainerSettings": {"processCount": 2,
    "pythonScriptFilePath": "$AZ_BATCHAI_INPUT_SCRIPT/train_mnist.py", "commandLineArgs": "-g -o $AZ_BATCHAI_OUTPUT_MODEL"})"))
                          .toolkit),
            "chainer");
  EXPECT_EQ(tool_type(clean_job(recipe(2, R"("caffe2Settings": {
    "pythonScriptFilePath": "$AZ_BATCHAI_INPUT_SCRIPT/resnet50.py",
    "commandLineArgs": "--shard_id $AZ_BATCHAI_TASK_INDEX --file_store_path $AZ_BATCHAI_SHARED_JOB_TEMP"})"))
                          .toolkit),
            "caffe2");
  EXPECT_EQ(tool_type(clean_job(recipe(2, R"("customMpiSettings": {
    "commandLine": "python $AZ_BATCHAI_INPUT_SCRIPT/score.py --out $AZ_BATCHAI_OUTPUT_MODEL", "processCount": 2})"))
                          .toolkit),
            "mpi");
}

TEST(recipes, cntk_of_the_preview_mounts_on_the_cluster) {
  const JobSpec job = clean_job(R"({
    "$schema": "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2017-09-01-preview/job.json",
    "properties": {
      "nodeCount": 2,
      "cntkSettings": {
        "configFilePath": "$AZ_BATCHAI_INPUT_CONFIG/ConvNet_MNIST.cntk",
        "commandLineArgs": "rootDir=. dataDir=$AZ_BATCHAI_INPUT_DATASET outputDir=$AZ_BATCHAI_OUTPUT_MODEL",
        "processCount": 2
      },
      "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external",
      "inputDirectories": [{"id": "DATASET", "path": "$AZ_BATCHAI_MOUNT_ROOT/external/data"},
                           {"id": "CONFIG", "path": "$AZ_BATCHAI_MOUNT_ROOT/external/cntk"}],
      "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external", "pathSuffix": "Models"}],
      "containerSettings": {"imageSourceRegistry": {"image": "microsoft/cntk:2.1-gpu"}}}})");
  EXPECT_EQ(std::get<ConfigFile>(std::get<CntkSettings>(job.toolkit).program).path,
            "$AZ_BATCHAI_INPUT_CONFIG/ConvNet_MNIST.cntk");
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
