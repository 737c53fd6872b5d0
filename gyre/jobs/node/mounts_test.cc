// Mounts decide where a job's results lie; a wrong one loses them, and a careless removal loses everybody's.
#include "gyre/jobs/node/mounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "gyre/base/error.h"

namespace gyre::jobs::node {

using orders::WorkOrder;

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

WorkOrder order_with(std::map<std::string, std::string> table) {
  WorkOrder order;
  order.job_name = "job";
  order.shared_folder = "/shared";
  order.nodes = {{"n0", "127.0.0.2", 1, 0}};
  order.cluster.gyre.mounts = std::move(table);
  return order;
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "it was accepted";
}

TEST(Mounts, volumes_become_directories_by_the_table) {
  WorkOrder order = order_with({{"external", "/data"}, {"nfs/", "/srv"}, {"more", "/more"}});
  order.cluster.mount_volumes.azure_file_shares.push_back({"a", "u", "external", {}});
  order.job.mount_volumes.file_servers.push_back({"id", std::nullopt, "nfs", std::nullopt});
  const MountPlan plan = plan_mounts(order, NodeFolders("/node"));
  EXPECT_EQ(plan.cluster, (std::vector<Mount>{{"/data", "/node/mounts/external"}, {"/more", "/node/mounts/more"}}));
  EXPECT_EQ(plan.job, (std::vector<Mount>{{"/srv", "/node/job_mounts/job/nfs"}, {"/shared", "/node/shared/job"}}));
  EXPECT_EQ(resolved("/node/mounts/external/a/b", plan), "/data/a/b");
  EXPECT_EQ(resolved("/elsewhere", plan), "/elsewhere");
}

// Nodes that share a machine: what one of them expands must exist on the others.
TEST(Mounts, an_order_may_give_all_nodes_the_same_mount_roots) {
  WorkOrder order = order_with({{"external", "/data"}, {"nfs", "/srv"}});
  order.job.mount_volumes.file_servers.push_back({"id", std::nullopt, "nfs", std::nullopt});
  order.mount_root = "/all/cluster";
  order.job_mount_root = "/all/job";
  const MountPlan one = plan_mounts(order, NodeFolders("/node-0"));
  EXPECT_EQ(one.cluster, (std::vector<Mount>{{"/data", "/all/cluster/external"}}));
  EXPECT_EQ(one.job.front(), (Mount{"/srv", "/all/job/nfs"}));
  EXPECT_EQ(one.cluster, plan_mounts(order, NodeFolders("/node-1")).cluster);
}

// The later mount shows what the earlier one has mounted, which nobody sees from outside the job.
TEST(Mounts, a_path_on_a_mount_that_shows_another_one_is_where_that_one_is) {
  const MountPlan plan{.cluster = {}, .job = {{"/srv", "/node/jobs/job/data"}, {"/node/jobs", "/all/jobs"}}};
  EXPECT_EQ(resolved("/all/jobs/job/x", plan), "/node/jobs/job/x");
  EXPECT_EQ(resolved("/all/jobs/job/data/x", plan), "/srv/x");
}

TEST(Mounts, a_volume_that_nothing_resolves_is_named_with_the_option_that_does) {
  WorkOrder order = order_with({});
  order.job.mount_volumes.unmanaged_file_systems.push_back({"mount -t lustre", "fast"});
  EXPECT_THAT(refusal_of([&] { plan_mounts(order, NodeFolders("/node")); }), HasSubstr("--mount fast=DIR"));
  order.job.mount_volumes = {};
  order.cluster.mount_volumes.azure_blob_file_systems.push_back({"a", "c", "blobs", {}, std::nullopt});
  EXPECT_THAT(refusal_of([&] { plan_mounts(order, NodeFolders("/node")); }), HasSubstr("object store"));
}

// On Slurm they were copied into a folder that went with the node.
TEST(Mounts, files_to_keep_need_a_mount_where_nodes_go_with_their_jobs) {
  spec::JobSpec job;
  job.output_files = {"*.pt"};
  job.std_out_err_path_prefix = spec::kLogsOnTheNode;
  spec::ClusterSpec cluster;
  cluster.gyre.mounts = {{"external", "/data"}};
  EXPECT_EQ(refusal_of([&] { check_mounts(job, cluster); }), "it was accepted");
  cluster.gyre.driver = "slurm";
  EXPECT_THAT(refusal_of([&] { check_mounts(job, cluster); }),
              HasSubstr("(gyre job submit --logs '$AZ_BATCHAI_MOUNT_ROOT/NAME')"));
  job.std_out_err_path_prefix = "$AZ_BATCHAI_MOUNT_ROOT/external/logs";
  EXPECT_EQ(refusal_of([&] { check_mounts(job, cluster); }), "it was accepted");
  job.output_files.clear();
  job.std_out_err_path_prefix = spec::kLogsOnTheNode;
  EXPECT_EQ(refusal_of([&] { check_mounts(job, cluster); }), "it was accepted");
}

TEST(Mounts, outputs_that_would_be_lost_with_the_node_are_refused) {
  const WorkOrder order = order_with({{"external", "/data"}});
  const NodeFolders folders("/node");
  const MountPlan plan = plan_mounts(order, folders);
  JobEnvironment environment;
  environment.log_folder = "/node/mounts/external/logs";
  check_places(order, folders, environment, plan);
  environment.outputs = {{"MODEL", "/node/mounts/extrenal/out"}};
  EXPECT_THAT(refusal_of([&] { check_places(order, folders, environment, plan); }), HasSubstr("--mount extrenal=DIR"));
}

// A node program of root made such folders, and gave them to the job's user.
TEST(Mounts, logs_and_outputs_outside_of_mounts_and_the_jobs_folders_are_refused) {
  WorkOrder order = order_with({{"external", "/data"}});
  order.shared_folder = "/server/attempts/1/shared";
  const NodeFolders folders("/node");
  const auto refusal = [&](const std::string& logs) {
    JobEnvironment environment;
    environment.log_folder = logs;
    environment.variables["AZ_BATCHAI_MOUNT_ROOT"] = "/";  // A job may set any variable.
    return refusal_of([&] { check_places(order, folders, environment, plan_mounts(order, folders)); });
  };
  for (const char* inside : {"/node/mounts/external/x", "/node/jobs/s/g/stdouterr", "/server/attempts/1/shared/x"}) {
    EXPECT_EQ(refusal(inside), "it was accepted") << inside;
  }
  for (const char* outside :
       {"/etc/cron.d", "/", "/node", "/node/agent/x", "/data/x", "/node/jobsx", "/root/stdouterr"}) {
    EXPECT_THAT(refusal(outside), HasSubstr("outside its mounts")) << outside;
  }
  for (const char* up : {"/node/mounts/external/../../../etc", "/node/jobs/../agent", "/.."}) {
    EXPECT_THAT(refusal(up), HasSubstr("has a '..'")) << up;
  }
}

class MountsOnDisk : public testing::Test {
 protected:
  MountsOnDisk() {
    std::string name = "/tmp/gyre-mounts-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    fs::create_directories(folder_ / "data");
    std::ofstream(folder_ / "data/precious") << "x";
  }
  ~MountsOnDisk() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(MountsOnDisk, removing_a_folder_never_reaches_into_what_is_linked) {
  const Mount mount{folder_ / "data", folder_ / "job/mounts/data"};
  make_mount(mount, MountMethod::kLink);
  make_mount(mount, MountMethod::kLink);
  EXPECT_TRUE(fs::exists(mount.target / "precious"));
  remove_folder(folder_ / "job");
  EXPECT_FALSE(fs::exists(folder_ / "job"));
  EXPECT_TRUE(fs::exists(folder_ / "data/precious"));
}

// In a process of its own, whose mounts nobody else sees.
TEST_F(MountsOnDisk, removing_a_folder_never_reaches_into_what_is_mounted) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const Mount mount{folder_ / "data", folder_ / "job/mounts/data"};
  const auto in_own_namespace = [&] {
    if (!enter_own_mount_namespace()) ::_exit(77);
    make_mount(mount, MountMethod::kBind);
    make_mount(mount, MountMethod::kBind);
    if (mount_points_below(folder_).size() != 1 || !fs::exists(mount.target / "precious")) ::_exit(1);
    remove_folder(folder_ / "job");
    ::_exit(fs::exists(folder_ / "job") || !mount_points_below(folder_).empty() ? 2 : 0);
  };
  EXPECT_EXIT(in_own_namespace(), testing::ExitedWithCode(0), "");
  EXPECT_TRUE(fs::exists(folder_ / "data/precious"));
}

TEST_F(MountsOnDisk, a_source_that_is_no_directory_is_named) {
  const Mount mount{folder_ / "nothing", folder_ / "mounts/x"};
  EXPECT_THAT(refusal_of([&] { make_mount(mount, MountMethod::kLink); }), HasSubstr("there is no directory /"));
}

// Folders of nodes that are not used any more piled up; what jobs have written to be read later must stay.
TEST(Mounts, of_a_node_that_is_given_up_only_logs_and_outputs_stay) {
  std::string name = "/tmp/gyre-node-XXXXXX";
  const fs::path root = ::mkdtemp(name.data());
  const fs::path log = root / "jobs/sub/group/workspaces/w/experiments/e/jobs/j/uuid/stdouterr/stdout.txt";
  for (const fs::path& file : {root / "agent/agent.log", root / "agent.lock", root / "jobs/j/code/train.py", log}) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "x";
  }
  fs::create_directory_symlink("/etc", root / "jobs/j/shared");
  remove_node(root);
  EXPECT_TRUE(fs::exists(log));
  EXPECT_EQ(std::distance(fs::directory_iterator(root), {}), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(root / "jobs"), {}), 1);
  EXPECT_TRUE(fs::exists("/etc/passwd"));
  fs::remove_all(root / "jobs/sub");
  remove_node(root);
  EXPECT_FALSE(fs::exists(root));
  remove_node(root);
}

}  // namespace
}  // namespace gyre::jobs::node
