// The service keeps jobs as text and shows them to everybody: nothing may be lost in the one and no secret in the
// other.
#include "gyre/jobs/spec/write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gyre/jobs/spec/parse_test_support.h"

namespace gyre::jobs::spec {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const SecretReference kReference{"/vault", "https://vault/secret"};

MountVolumes every_volume() {
  MountVolumes volumes;
  volumes.azure_file_shares = {{"acc", "url", "a", {"hush", {}}, "0755", "0700"},
                               {"acc", "url", "b", {}, "0777", "0777"}};
  volumes.azure_blob_file_systems = {{"acc", "box", "c", {{}, kReference}, "-o x"}, {"acc", "box", "d", {}, {}}};
  volumes.file_servers = {{"/nfs", "src", "e", "ro"}, {"/nfs", {}, "f", {}}};
  volumes.unmanaged_file_systems = {{"mount x", "g/h"}};
  return volumes;
}

JobSpec full_job(Toolkit toolkit) {
  JobSpec job;
  job.cluster_id = "/clusters/c";
  job.node_count = 3;
  job.scheduling_priority = SchedulingPriority::kLow;
  job.toolkit = std::move(toolkit);
  job.std_out_err_path_prefix = "$AZ_BATCHAI_MOUNT_ROOT/l\n\"ü";
  job.input_directories = {{"IN", "/in"}};
  job.output_directories = {{"OUT", "/out", "x/y"}, {"PLAIN", "/out", ""}};
  job.output_files = {"*.pt", "out/**"};
  job.gpus_per_node = 2;
  job.cpus_per_node = 4;
  job.memory_per_node = "16gb";
  job.mount_volumes = every_volume();
  job.environment_variables = {{"B", ""}, {"A", "$AZ_BATCHAI_OUTPUT_OUT"}};
  job.secrets = {{"S", {"hush", {}}}, {"T", {{}, kReference}}};
  job.container_settings =
      ContainerSettings{"image", "server", RegistryCredentials{"me", {"hush", {}}}, "16gb", true, "sha256:0"};
  job.job_preparation_command_line = "prepare";
  job.max_wall_clock_time = std::chrono::seconds(90061);
  return job;
}

TEST(write, builds_of_images_come_back) {
  JobSpec job = full_job(CustomToolkitSettings{"x"});
  const ImageBuild of_requirements{.dockerfile = {}, .requirements = PythonRequirements{{}, {"numpy"}}};
  for (const ImageBuild& each : {of_requirements, ImageBuild{"a/Dockerfile", {}}}) {
    job.container_settings->build = each;
    EXPECT_EQ(clean_job(nlohmann::json{{"properties", to_json(job, Secrets::kIncluded)}}.dump()), job);
  }
  job.container_settings = ContainerSettings{.image = {}, .server_url = {}, .credentials = {}, .shm_size = {}};
  job.container_settings->build = ImageBuild{"Dockerfile", {}};
  EXPECT_EQ(clean_job(nlohmann::json{{"properties", to_json(job, Secrets::kIncluded)}}.dump()), job);
}

TEST(write, requirements_come_back_in_either_form) {
  for (const PythonRequirements& each :
       {PythonRequirements{"a/requirements.txt", {}}, PythonRequirements{{}, {"numpy==2.1", "", "--no-index"}}}) {
    JobSpec job = full_job(CustomToolkitSettings{"x"});
    job.container_settings.reset();
    job.requirements = each;
    EXPECT_EQ(clean_job(nlohmann::json{{"properties", to_json(job, Secrets::kIncluded)}}.dump()), job);
  }
}

std::vector<Toolkit> every_toolkit() {
  const PythonScript plain{"/x.py", {}};
  const PythonScript full{"/x.py", "/python"};
  return {CustomToolkitSettings{"x"},
          CustomMpiSettings{"x", {}},
          CustomMpiSettings{"x", 2},
          HorovodSettings{full, "a", 2},
          ChainerSettings{plain, "", {}},
          CntkSettings{ConfigFile{"/c"}, "a", 2},
          CntkSettings{full, "", {}},
          CaffeSettings{ConfigFile{"/c"}, "", {}},
          CaffeSettings{plain, "a", 4},
          Caffe2Settings{full, "a"},
          PyTorchSettings{plain, "a", 2, PyTorchBackend::kGloo},
          PyTorchSettings{full, "", {}, PyTorchBackend::kMpi},
          PyTorchSettings{full, "", {}, PyTorchBackend::kTcp},
          PyTorchSettings{full, "", {}, {}},
          TensorFlowSettings{full, "m", "w", "p", 3, 2},
          TensorFlowSettings{plain, "", "", "", {}, {}},
          GyreSettings{{"a", "", "b c"}, 4, 2}};
}

std::string as_file(const nlohmann::json& properties) { return nlohmann::json{{"properties", properties}}.dump(1); }

TEST(write, every_job_comes_back_as_it_was_and_without_a_warning) {
  for (const Toolkit& toolkit : every_toolkit()) {
    SCOPED_TRACE(tool_type(toolkit));
    const JobSpec job = full_job(toolkit);
    EXPECT_EQ(clean_job(as_file(to_json(job, Secrets::kIncluded))), job);
    JobSpec smallest;
    smallest.toolkit = toolkit;
    smallest.node_count = 2;
    smallest.std_out_err_path_prefix = "/l";
    EXPECT_EQ(clean_job(as_file(to_json(smallest, Secrets::kIncluded))), smallest);
  }
}

TEST(write, secrets_are_null_and_their_names_stay) {
  const nlohmann::json json = to_json(full_job(CustomToolkitSettings{"x"}));
  EXPECT_THAT(json.dump(), Not(HasSubstr("hush")));
  EXPECT_EQ(json["secrets"][0], (nlohmann::json{{"name", "S"}, {"value", nullptr}}));
  EXPECT_EQ(json["secrets"][1]["valueSecretReference"]["secretUrl"], "https://vault/secret");
  EXPECT_TRUE(json["mountVolumes"]["azureFileShares"][0]["credentials"]["accountKey"].is_null());
  EXPECT_TRUE(json["containerSettings"]["imageSourceRegistry"]["credentials"]["password"].is_null());
}

TEST(write, the_answer_has_the_newest_form) {
  const JobSpec job = clean_job(R"({
    "$schema": "https://example.org/schemas/2017-09-01-preview/job.json",
    "properties": {"priority": 5, "nodeCount": 2, "stdOutErrPathPrefix": "/l",
                   "constraints": {"maxWallClockTime": "1.12:00:00"},
                   "cntkSettings": {"configFilePath": "/c"}}})");
  EXPECT_EQ(to_json(job), nlohmann::json::parse(R"({
    "schedulingPriority": "high", "nodeCount": 2, "stdOutErrPathPrefix": "/l", "toolType": "cntk",
    "constraints": {"maxWallClockTime": "P1DT12H"},
    "cntkSettings": {"configFilePath": "/c", "languageType": "BrainScript"}})"));
}

TEST(write, every_cluster_comes_back_as_it_was) {
  ClusterSpec cluster;
  cluster.vm_size = "STANDARD_NC6";
  EXPECT_EQ(parse_cluster(as_file(to_json(cluster, Secrets::kIncluded))).spec, cluster);
  cluster.vm_priority = VmPriority::kLowPriority;
  cluster.scale_settings = AutoScale{1, 5, 2};
  cluster.image = ImageReference{"p", "o", "s", "v", "/image"};
  cluster.setup_task = SetupTask{"setup", "/logs", {{"A", "1"}}, {{"S", {"hush", {}}}}};
  cluster.mount_volumes = every_volume();
  cluster.app_insights = AppInsightsReference{"/component", {"hush", {}}};
  cluster.user_account = UserAccountSettings{"admin", "ssh-rsa x", "hush"};
  cluster.subnet_id = "/subnet";
  cluster.gyre = {"slurm", {{"partition", "gpu"}}, {{"a", "/data/a"}}, Containers::kHost};
  const auto parsed = parse_cluster(as_file(to_json(cluster, Secrets::kIncluded)));
  EXPECT_THAT(problems_of(parsed), IsEmpty());
  EXPECT_EQ(parsed.spec, cluster);
  EXPECT_THAT(to_json(cluster).dump(), Not(HasSubstr("hush")));
  cluster.scale_settings = ManualScale{3, NodeDeallocationOption::kWaitForJobCompletion};
  EXPECT_EQ(parse_cluster(as_file(to_json(cluster, Secrets::kIncluded))).spec, cluster);
}

}  // namespace
}  // namespace gyre::jobs::spec
