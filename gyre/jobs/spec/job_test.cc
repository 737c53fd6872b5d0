// Old job files must run unchanged: every property of the contract, its default, and what is tolerated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/parse_test_support.h"

namespace gyre::jobs::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(job, the_smallest_file_gets_every_default) {
  const JobSpec job = clean_job(job_file(""));
  JobSpec expected;
  expected.toolkit = CustomToolkitSettings{"true"};
  expected.std_out_err_path_prefix = "/logs";
  EXPECT_EQ(job, expected);
  EXPECT_EQ(job.node_count, 1);
  EXPECT_EQ(job.scheduling_priority, SchedulingPriority::kNormal);
  EXPECT_EQ(job.max_wall_clock_time, std::chrono::days(7));
  EXPECT_EQ(job.cluster_id, "");
}

TEST(job, every_property_outside_the_toolkits_is_read) {
  const JobSpec job = clean_job(R"({
    "$schema": "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2018-05-01/job.json",
    "properties": {
      "cluster": {"id": "/subscriptions/s/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/clusters/c"},
      "nodeCount": 3,
      "schedulingPriority": "high",
      "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/logs",
      "inputDirectories": [{"id": "DATA", "path": "/data"}, {"id": "CODE", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/code"}],
      "outputDirectories": [{"id": "MODEL", "pathPrefix": "/out", "pathSuffix": "models/last/"},
                            {"id": "REST", "pathPrefix": "/out"}],
      "environmentVariables": [{"name": "B", "value": "2"}, {"name": "A", "value": ""}],
      "secrets": [{"name": "TOKEN", "value": "hush"},
                  {"name": "KEY", "valueSecretReference": {"sourceVault": {"id": "/vault"}, "secretUrl": "https://k/s"}}],
      "containerSettings": {
        "imageSourceRegistry": {"serverUrl": "reg.example", "image": "team/train:1",
                                "credentials": {"username": "me", "password": "pw"}},
        "shmSize": "16gb"},
      "jobPreparation": {"commandLine": "pip install x"},
      "constraints": {"maxWallClockTime": "PT36H"},
      "customMpiSettings": {"commandLine": "hostname", "processCount": 6}
    }})");
  EXPECT_THAT(job.cluster_id, HasSubstr("/clusters/c"));
  EXPECT_EQ(job.node_count, 3);
  EXPECT_EQ(job.scheduling_priority, SchedulingPriority::kHigh);
  EXPECT_EQ(job.std_out_err_path_prefix, "$AZ_BATCHAI_MOUNT_ROOT/logs");
  EXPECT_THAT(job.input_directories,
              ElementsAre(InputDirectory{"DATA", "/data"}, InputDirectory{"CODE", "$AZ_BATCHAI_JOB_MOUNT_ROOT/code"}));
  EXPECT_THAT(job.output_directories,
              ElementsAre(OutputDirectory{"MODEL", "/out", "models/last"}, OutputDirectory{"REST", "/out", ""}));
  EXPECT_THAT(job.environment_variables, ElementsAre(EnvironmentVariable{"B", "2"}, EnvironmentVariable{"A", ""}));
  EXPECT_THAT(job.secrets, ElementsAre(SecretVariable{"TOKEN", {"hush", {}}},
                                       SecretVariable{"KEY", {{}, SecretReference{"/vault", "https://k/s"}}}));
  const ContainerSettings container{"team/train:1", "reg.example", RegistryCredentials{"me", {"pw", {}}}, "16gb"};
  EXPECT_EQ(job.container_settings, container);
  EXPECT_EQ(job.job_preparation_command_line, "pip install x");
  EXPECT_EQ(job.max_wall_clock_time, std::chrono::hours(36));
  EXPECT_EQ(job.toolkit, Toolkit(CustomMpiSettings{"hostname", 6}));
}

TEST(job, all_four_kinds_of_volumes_are_read_with_their_defaults) {
  const JobSpec job = clean_job(job_file(R"("mountVolumes": {
    "azureFileShares": [{"accountName": "acc", "azureFileUrl": "https://acc.file.core.windows.net/share",
      "relativeMountPath": "external", "credentials": {"accountKey": "k"}}],
    "azureBlobFileSystems": [{"accountName": "acc", "containerName": "box", "relativeMountPath": "blobs/",
      "credentials": {"accountKeySecretReference": {"sourceVault": {"id": "/v"}, "secretUrl": "u"}},
      "mountOptions": "-o x"}],
    "fileServers": [{"fileServer": {"id": "/nfs"}, "sourceDirectory": "src", "relativeMountPath": "nfs"}],
    "unmanagedFileSystems": [{"mountCommand": "mount -t glusterfs host:/vol", "relativeMountPath": "./gluster//a"}]})"));
  const MountVolumes& volumes = job.mount_volumes;
  EXPECT_THAT(volumes.azure_file_shares,
              ElementsAre(AzureFileShare{
                  "acc", "https://acc.file.core.windows.net/share", "external", {"k", {}}, "0777", "0777"}));
  EXPECT_THAT(volumes.azure_blob_file_systems,
              ElementsAre(AzureBlobFileSystem{"acc", "box", "blobs", {{}, SecretReference{"/v", "u"}}, "-o x"}));
  EXPECT_THAT(volumes.file_servers, ElementsAre(FileServerMount{"/nfs", "src", "nfs", std::nullopt}));
  EXPECT_THAT(volumes.unmanaged_file_systems,
              ElementsAre(UnmanagedFileSystem{"mount -t glusterfs host:/vol", "gluster/a"}));
}

TEST(job, words_are_compared_without_case) {
  const std::string block = R"("pyTorchSettings": {"pythonScriptFilePath": "/a.py", "communicationBackend": "gloo"})";
  const JobSpec job = clean_job(job_file(R"("schedulingPriority": "LOW")", block));
  EXPECT_EQ(job.scheduling_priority, SchedulingPriority::kLow);
  EXPECT_EQ(std::get<PyTorchSettings>(job.toolkit).communication_backend, PyTorchBackend::kGloo);
}

TEST(job, numbers_in_quotes_are_taken_with_a_warning) {
  std::vector<std::string> warnings;
  const JobSpec job = tolerated_job(
      R"({"properties": {"nodeCount": "2", "stdOutErrPathPrefix": "/l",
          "customMpiSettings": {"commandLine": "x", "processCount": "4"}}})",
      warnings);
  EXPECT_EQ(job.node_count, 2);
  EXPECT_EQ(process_count(job), 4);
  EXPECT_THAT(
      warnings,
      ElementsAre("1: warning: /properties/nodeCount must be a number, not text: remove the quotes",
                  "2: warning: /properties/customMpiSettings/processCount must be a number, not text: remove the "
                  "quotes"));
}

TEST(job, what_earlier_clients_sent_is_tolerated_in_the_newest_version) {
  std::vector<std::string> warnings;
  const JobSpec job = tolerated_job(
      job_file(R"("toolType": "custom", "priority": 7, "experimentName": "e", "executionInfo": {"exitCode": 0},
                  "outputDirectories": [{"id": "M", "pathPrefix": "/o", "type": "model", "createNew": true}],
                  "constraints": {"maxWallClockTime": "7.00:00:00", "maxRetryCount": 0},
                  "cntkSettings": null, "mountVolumes": null)"),
      warnings);
  EXPECT_EQ(job.scheduling_priority, SchedulingPriority::kHigh);
  EXPECT_THAT(
      warnings,
      UnorderedElementsAre(
          "1: warning: /properties/priority has no meaning since version 2018-05-01; schedulingPriority replaced it",
          "1: warning: /properties/experimentName has no meaning since version 2018-05-01; the experiment is part "
          "of the job's address",
          "2: warning: /properties/outputDirectories/0/type has no meaning since version 2018-05-01; it is ignored",
          "2: warning: /properties/outputDirectories/0/createNew has no meaning since version 2018-05-01; the "
          "directory is always created"));
}

TEST(job, properties_of_the_preview_are_no_warning_in_its_own_files) {
  const JobSpec job = clean_job(R"({
    "$schema": "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2017-09-01-preview/job.json",
    "location": "eastus",
    "properties": {
      "experimentName": "old", "priority": -3, "nodeCount": 1, "stdOutErrPathPrefix": "/l",
      "environmentVariables": [{"name": "EMPTY"}],
      "outputDirectories": [{"id": "M", "pathPrefix": "/o", "type": "Model", "createNew": true}],
      "customToolkitSettings": {"commandLine": "x"}}})");
  EXPECT_EQ(job.experiment_name, "old");
  EXPECT_EQ(job.scheduling_priority, SchedulingPriority::kLow);
  EXPECT_THAT(job.environment_variables, ElementsAre(EnvironmentVariable{"EMPTY", ""}));
}

TEST(job, what_came_later_than_the_files_version_works_with_a_warning) {
  std::vector<std::string> warnings;
  ParseOptions preview;
  preview.version = ApiVersion::k2017_09_01_preview;
  const JobSpec job = tolerated_job(job_file(R"("secrets": [{"name": "A", "value": "b"}], "schedulingPriority": "low")",
                                             R"("horovodSettings": {"pythonScriptFilePath": "/t.py"})"),
                                    warnings, preview);
  EXPECT_EQ(tool_type(job.toolkit), "horovod");
  EXPECT_THAT(warnings,
              UnorderedElementsAre(
                  "1: warning: /properties/secrets came with version 2018-03-01; the file's is 2017-09-01-preview",
                  "1: warning: /properties/horovodSettings came with version 2018-05-01; the file's is "
                  "2017-09-01-preview",
                  "1: warning: /properties/schedulingPriority came with version 2018-05-01; the file's is "
                  "2017-09-01-preview"));
}

TEST(job, a_value_is_required_for_variables_since_2018) {
  const auto parsed = parse_job(job_file(R"("environmentVariables": [{"name": "A"}, {"name": "B", "value": null}])"));
  EXPECT_THAT(problems_of(parsed),
              ElementsAre("1: /properties/environmentVariables/0/value is missing; write \"\" for an empty value",
                          "1: /properties/environmentVariables/1/value is missing; write \"\" for an empty value"));
}

TEST(job, a_variable_that_is_given_again_counts_last) {
  std::vector<std::string> warnings;
  const JobSpec job =
      tolerated_job(job_file(R"("environmentVariables": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"},
                                           {"name": "S", "value": "shown"}],
                  "secrets": [{"name": "S", "value": "hidden"}])"),
                    warnings);
  EXPECT_THAT(job.environment_variables, ElementsAre(EnvironmentVariable{"A", "2"}));
  EXPECT_THAT(job.secrets, ElementsAre(SecretVariable{"S", {"hidden", {}}}));
  EXPECT_EQ(warnings.size(), 2U);
}

TEST(job, placeholders_of_the_storage_account_are_filled) {
  const std::string file = job_file(R"("mountVolumes": {"azureFileShares": [
    {"accountName": "<AZURE_BATCHAI_STORAGE_ACCOUNT>",
     "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/s", "relativeMountPath": "a",
     "credentials": {"accountKey": "<AZURE_BATCHAI_STORAGE_KEY>"}},
    {"accountName": "mine", "azureFileUrl": "u", "relativeMountPath": "b"},
    {"accountName": "other", "azureFileUrl": "u", "relativeMountPath": "c"}]})");
  ParseOptions options;
  options.storage_account = "mine";
  options.storage_key = "key";
  const auto shares = clean_job(file, options).mount_volumes.azure_file_shares;
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_EQ(shares[0].account_name, "mine");
  EXPECT_EQ(shares[0].url, "https://mine.file.core.windows.net/s");
  EXPECT_EQ(shares[0].account_key.text, "key");
  EXPECT_EQ(shares[1].account_key.text, "key");
  EXPECT_EQ(shares[2].account_key.text, std::nullopt) << "another account's key is not ours";
  EXPECT_EQ(clean_job(file).mount_volumes.azure_file_shares[0].account_name, "<AZURE_BATCHAI_STORAGE_ACCOUNT>");
}

TEST(job, the_version_comes_from_the_schema_and_from_the_caller_before_it) {
  const auto version = [](const std::string& schema, std::optional<ApiVersion> given = {}) {
    ParseOptions options;
    options.version = given;
    return parse_job(R"({"$schema": ")" + schema + R"(", "properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/l",
                     "customToolkitSettings": {"commandLine": "x"}}})",
                     options)
        .version;
  };
  EXPECT_EQ(version("https://example.org/schemas/2017-09-01-preview/job.json"), ApiVersion::k2017_09_01_preview);
  EXPECT_EQ(version("https://example.org/schemas/2018-03-01/custom.json"), ApiVersion::k2018_03_01);
  EXPECT_EQ(version("schemas/2018-05-01/pytorch.json"), ApiVersion::k2018_05_01);
  EXPECT_EQ(version("https://example.org/schemas/2018-03-01/job.json", ApiVersion::k2018_05_01),
            ApiVersion::k2018_05_01);
  EXPECT_EQ(parse_job(job_file("")).version, ApiVersion::k2018_05_01);
  EXPECT_EQ(version_named("2018-03-01"), ApiVersion::k2018_03_01);
  EXPECT_EQ(version_named("2019-01-01"), std::nullopt);
}

TEST(job, the_properties_may_stand_alone) {
  std::vector<std::string> warnings;
  const JobSpec job = tolerated_job(
      R"({"nodeCount": 1, "stdOutErrPathPrefix": "/l", "customToolkitSettings": {"commandLine": "x"}})", warnings);
  EXPECT_EQ(job.toolkit, Toolkit(CustomToolkitSettings{"x"}));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("the file has no \"properties\"")));
}

TEST(job, properties_in_another_case_are_taken_with_a_warning) {
  std::vector<std::string> warnings;
  const JobSpec job = tolerated_job(job_file(R"("JobPreparation": {"commandline": "x"})"), warnings);
  EXPECT_EQ(job.job_preparation_command_line, "x");
  EXPECT_THAT(warnings,
              UnorderedElementsAre("1: warning: /properties/JobPreparation is spelled \"jobPreparation\"",
                                   "1: warning: /properties/JobPreparation/commandline is spelled \"commandLine\""));
}

TEST(job, numbers_of_processes_follow_the_toolkit) {
  const auto count = [](const std::string& block) {
    return process_count(clean_job(R"({"properties": {"nodeCount": 3, "stdOutErrPathPrefix": "/l", )" + block + "}}"));
  };
  EXPECT_EQ(count(R"("customToolkitSettings": {"commandLine": "x"})"), 1);
  EXPECT_EQ(count(R"("customMpiSettings": {"commandLine": "x"})"), 3);
  EXPECT_EQ(count(R"("horovodSettings": {"pythonScriptFilePath": "/x", "processCount": 12})"), 12);
  EXPECT_EQ(count(R"("caffe2Settings": {"pythonScriptFilePath": "/x"})"), 3);
  EXPECT_EQ(count(R"("tensorFlowSettings": {"pythonScriptFilePath": "/x"})"), 3 + 1);
  EXPECT_EQ(
      count(R"("tensorFlowSettings": {"pythonScriptFilePath": "/x", "workerCount": 6, "parameterServerCount": 2})"),
      6 + 2);
  EXPECT_EQ(count(R"("gyreSettings": {"program": ["x"], "processesPerNode": 4})"), 12);
}

// Batch AI had no such property: it goes with every toolkit and version.
TEST(job, patterns_of_files_to_keep_are_read_and_those_that_lead_out_are_errors) {
  const JobSpec job = clean_job(job_file(R"("outputFiles": ["*.pt", "out/**"])"));
  EXPECT_THAT(job.output_files, ElementsAre("*.pt", "out/**"));
  const auto refused = [](const std::string& more) { return problems_of(parse_job(job_file(more))); };
  EXPECT_THAT(refused(R"("outputFiles": ["*.pt", "/etc/passwd", "a/../.."])"),
              ElementsAre(HasSubstr("/properties/outputFiles has a pattern that cannot be used: '/etc/passwd' is "
                                    "absolute"),
                          HasSubstr("'a/../..' contains '..'")));
  EXPECT_THAT(refused(R"("outputFiles": "*.pt")"), testing::SizeIs(1));
  // The id is free where no files are kept under it.
  const std::string directory = R"("outputDirectories": [{"id": "Work", "pathPrefix": "/out"}])";
  EXPECT_THAT(refused(directory), IsEmpty());
  EXPECT_THAT(refused(directory + R"(, "outputFiles": ["x"])"),
              ElementsAre(HasSubstr("are kept as output directory 'work'")));
}

TEST(job, a_single_tensorflow_worker_has_no_parameter_server) {
  EXPECT_EQ(process_count(clean_job(job_file("", R"("tensorFlowSettings": {"pythonScriptFilePath": "/x"})"))), 1);
}

}  // namespace
}  // namespace gyre::jobs::spec
