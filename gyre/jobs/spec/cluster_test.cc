// Cluster files of Batch AI and the block of our own that says which directories stand in for its file shares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/parse_test_support.h"

namespace gyre::jobs::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

TEST(cluster, a_full_file_of_batch_ai_is_read) {
  const auto parsed = parse_cluster(R"({
    "$schema": "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2018-05-01/cluster.json",
    "properties": {
      "vmSize": "STANDARD_NC6",
      "vmPriority": "LowPriority",
      "scaleSettings": {"manual": {"targetNodeCount": 2, "nodeDeallocationOption": "WaitForJobCompletion"}},
      "virtualMachineConfiguration": {"imageReference": {"publisher": "p", "offer": "o", "sku": "s", "version": "latest"}},
      "nodeSetup": {
        "setupTask": {"commandLine": "install", "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external/setup",
                      "environmentVariables": [{"name": "A", "value": "1"}], "secrets": [{"name": "S", "value": "v"}]},
        "mountVolumes": {"unmanagedFileSystems": [{"mountCommand": "m", "relativeMountPath": "external"}]},
        "performanceCountersSettings": {"appInsightsReference": {"component": {"id": "/c"}, "instrumentationKey": "k"}}},
      "userAccountSettings": {"adminUserName": "me", "adminUserSshPublicKey": "ssh-rsa x"},
      "subnet": {"id": "/net"},
      "allocationState": "steady", "nodeStateCounts": {"idleNodeCount": 0}
    }})");
  EXPECT_THAT(problems_of(parsed), IsEmpty());
  ASSERT_TRUE(parsed.spec.has_value());
  ClusterSpec expected;
  expected.vm_size = "STANDARD_NC6";
  expected.vm_priority = VmPriority::kLowPriority;
  expected.scale_settings = ManualScale{2, NodeDeallocationOption::kWaitForJobCompletion};
  expected.image = ImageReference{"p", "o", "s", "latest", {}};
  expected.setup_task = SetupTask{"install", "$AZ_BATCHAI_MOUNT_ROOT/external/setup", {{"A", "1"}}, {{"S", {"v", {}}}}};
  expected.mount_volumes.unmanaged_file_systems = {{"m", "external"}};
  expected.app_insights = AppInsightsReference{"/c", {"k", {}}};
  expected.user_account = UserAccountSettings{"me", "ssh-rsa x", {}};
  expected.subnet_id = "/net";
  EXPECT_EQ(*parsed.spec, expected);
}

TEST(cluster, the_workshops_form_is_tolerated) {
  const auto parsed = parse_cluster(R"({"properties": {"vmSize": "S",
    "scaleSettings": {"autoScale": {"minimumNodeCount": "0", "maximumNodeCount": "4"}},
    "virtualMachineConfiguration": {"publisher": "p", "offer": "o", "sku": "s"}}})");
  ASSERT_TRUE(parsed.spec.has_value());
  EXPECT_EQ(std::get<AutoScale>(parsed.spec->scale_settings), (AutoScale{0, 4, 0}));
  EXPECT_EQ(parsed.spec->image, (ImageReference{"p", "o", "s", {}, {}}));
  EXPECT_EQ(parsed.problems.size(), 3U);
}

TEST(cluster, our_own_block_names_driver_mounts_and_containers) {
  const auto parsed = parse_cluster(R"(properties:
  scaleSettings: {manual: {targetNodeCount: 2}}
  gyreSettings:
    driver: slurm
    driverOptions: {partition: gpu, nodes: 4}
    mounts: {external: /data/external, job/: /scratch}
    containers: Host
)");
  EXPECT_THAT(problems_of(parsed), IsEmpty());
  ASSERT_TRUE(parsed.spec.has_value());
  const ClusterGyreSettings& gyre = parsed.spec->gyre;
  EXPECT_EQ(gyre.driver, "slurm");
  EXPECT_THAT(gyre.driver_options, ElementsAre(Pair("nodes", "4"), Pair("partition", "gpu")));
  EXPECT_THAT(gyre.mounts, ElementsAre(Pair("external", "/data/external"), Pair("job", "/scratch")));
  EXPECT_EQ(gyre.containers, Containers::kHost);
}

TEST(cluster, wrong_files_get_every_error) {
  const auto problems = [](const std::string& properties) {
    return problems_of(parse_cluster(R"({"properties": {)" + properties + "}}"));
  };
  EXPECT_THAT(problems(""), ElementsAre("1: /properties/vmSize is missing"));
  EXPECT_THAT(
      problems(R"("vmSize": "S", "scaleSettings": {})"),
      ElementsAre("1: /properties/scaleSettings/manual is missing, and so is autoScale: one of them is needed"));
  EXPECT_THAT(problems(R"("vmSize": "S", "scaleSettings": {"manual": {"targetNodeCount": 1},
                          "autoScale": {"minimumNodeCount": 2, "maximumNodeCount": 1}})"),
              ElementsAre("2: /properties/scaleSettings/autoScale/maximumNodeCount is below minimumNodeCount",
                          "2: /properties/scaleSettings/autoScale and manual exclude each other"));
  EXPECT_THAT(
      problems(R"("gyreSettings": {"mounts": {"../x": "/d", "external": "data"}, "containers": "docker"})"),
      ElementsAre(HasSubstr("mounts must not contain"), HasSubstr("mounts names must be relative"),
                  HasSubstr("mounts must lead to absolute"),
                  "1: /properties/gyreSettings/containers is \"docker\"; container, refused, host are possible"));
  EXPECT_THAT(problems(R"("vmSize": "S", "nodeSetup": {"setupTask": {"commandLine": "x"}})"),
              ElementsAre("1: /properties/nodeSetup/setupTask/stdOutErrPathPrefix is missing"));
}

}  // namespace
}  // namespace gyre::jobs::spec
