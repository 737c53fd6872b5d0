// The environment is the contract between the launcher and every rank; a stale variable from outside would break it.
#include "gyre/launch/internal/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/launch/internal/device_masks.h"

namespace gyre::launch {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

JobEnvironment job_of(int ranks, int cores) {
  JobEnvironment job;
  job.inherited = {"HOME=/home/ada", "TORCHELASTIC_ERROR_FILE=/tmp/of_a_torchrun_outside"};
  job.ranks.resize(static_cast<std::size_t>(ranks));
  std::iota(job.ranks.begin(), job.ranks.end(), 0);
  job.size = ranks;
  job.master_address = "127.0.0.1";
  job.master_port = 4711;
  job.run_id = "none";
  job.cores = cores;
  job.rendezvous = "unix:@gyre-1";
  job.rendezvous_fd = 7;
  job.key_fd = 8;
  job.ended_fd = 10;
  job.failure_fd = 9;
  return job;
}

TEST(rank_environment, every_rank_learns_its_place) {
  EXPECT_THAT(
      rank_environment(job_of(4, 8), 2),
      UnorderedElementsAre(
          "HOME=/home/ada", "GYRE_RANK=2", "GYRE_SIZE=4", "GYRE_LOCAL_RANK=2", "GYRE_LOCAL_SIZE=4",
          "GYRE_RENDEZVOUS=unix:@gyre-1", "GYRE_KEY_FD=8", "GYRE_ENDED_FD=10", "GYRE_FAILURE_FD=9", "OMP_NUM_THREADS=2",
          "PYTHONUNBUFFERED=1", "RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=0",
          "GROUP_WORLD_SIZE=1", "ROLE_RANK=2", "ROLE_WORLD_SIZE=4", "ROLE_NAME=default", "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=4711", "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_MAX_RESTARTS=0",
          "TORCHELASTIC_USE_AGENT_STORE=False", "HOROVOD_RANK=2", "HOROVOD_SIZE=4", "HOROVOD_LOCAL_RANK=2",
          "HOROVOD_LOCAL_SIZE=4", "HOROVOD_CROSS_RANK=0", "HOROVOD_CROSS_SIZE=1"));
}

TEST(rank_environment, ranks_of_the_second_host_count_from_the_first_hosts_end) {
  JobEnvironment job = job_of(2, 8);
  job.ranks = {3, 4};
  job.size = 5;
  job.node = 1;
  job.nodes = 2;
  job.key_fd = -1;
  job.rendezvous_fd = -1;
  const auto environment = rank_environment(job, 1);
  EXPECT_THAT(environment, IsSupersetOf({"GYRE_RANK=4", "GYRE_SIZE=5", "GYRE_LOCAL_RANK=1", "GYRE_LOCAL_SIZE=2",
                                         "RANK=4", "WORLD_SIZE=5", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2",
                                         "HOROVOD_RANK=4", "HOROVOD_LOCAL_RANK=1", "HOROVOD_CROSS_RANK=1"}));
  EXPECT_THAT(environment, Each(Not(StartsWith("GYRE_KEY_FD="))));
}

TEST(rank_environment, scripts_do_not_count_parameter_servers) {
  JobEnvironment job = job_of(3, 8);  // Two workers and a server, of four and two.
  job.ranks = {2, 3, 5};
  job.size = 6;
  job.servers = 2;
  const auto environment = rank_environment(job, 1);
  EXPECT_THAT(environment, IsSupersetOf({"GYRE_RANK=3", "GYRE_SIZE=6", "GYRE_SERVERS=2", "GYRE_LOCAL_SIZE=3", "RANK=3",
                                         "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2", "ROLE_WORLD_SIZE=4", "HOROVOD_SIZE=4",
                                         "HOROVOD_LOCAL_SIZE=2", "OMP_NUM_THREADS=4"}));
  job.ranks = {4};
  EXPECT_THAT(rank_environment(job, 0), IsSupersetOf({"GYRE_RANK=4", "OMP_NUM_THREADS=8"})) << "a host of servers";
}

TEST(rank_environment, only_rank_0_gets_the_listening_socket_and_everyone_the_failure_pipe) {
  EXPECT_THAT(rank_environment(job_of(4, 8), 0), Contains("GYRE_RENDEZVOUS_FD=7"));
  EXPECT_THAT(rank_environment(job_of(4, 8), 1), Each(Not(StartsWith("GYRE_RENDEZVOUS_FD="))));
  EXPECT_THAT(rank_environment(job_of(4, 8), 0), Contains("GYRE_FAILURE_FD=9"));
  EXPECT_THAT(rank_environment(job_of(4, 8), 1), Contains("GYRE_FAILURE_FD=9"));
}

TEST(rank_environment, every_rank_gets_the_file_of_those_that_have_ended) {
  for (const int rank : {0, 1}) EXPECT_THAT(rank_environment(job_of(4, 8), rank), Contains("GYRE_ENDED_FD=10"));
}

TEST(rank_environment, a_launcher_above_us_is_not_obeyed) {
  JobEnvironment job = job_of(1, 1);
  job.inherited = {"GYRE_RANK=9", "GYRE_RENDEZVOUS_FD=3", "GYRE_KEY_FD=4", "GYRE_RANKING=kept", "GYRE_LOG_LEVEL=info"};
  const auto environment = rank_environment(job, 0);
  EXPECT_EQ(std::count_if(environment.begin(), environment.end(),
                          [](const std::string& entry) { return entry.starts_with("GYRE_RANK="); }),
            1);
  EXPECT_THAT(environment, IsSupersetOf({"GYRE_RANK=0", "GYRE_RANKING=kept", "GYRE_LOG_LEVEL=info"}));
  EXPECT_THAT(environment, Not(Contains("GYRE_KEY_FD=4")));
}

TEST(rank_environment, the_users_thread_count_stays_and_an_empty_one_is_none) {
  JobEnvironment job = job_of(2, 8);
  job.inherited = {"OMP_NUM_THREADS=3"};
  EXPECT_THAT(rank_environment(job, 0), Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(rank_environment(job, 0), Not(Contains("OMP_NUM_THREADS=4")));
  job.inherited = {"OMP_NUM_THREADS="};
  EXPECT_THAT(rank_environment(job, 0), Contains("OMP_NUM_THREADS=4"));
}

TEST(rank_environment, a_rank_has_at_least_one_thread) {
  EXPECT_EQ(threads_per_rank(2, 4), 1);
  EXPECT_EQ(threads_per_rank(8, 3), 2);
  EXPECT_EQ(threads_per_rank(8, 1), 8);
}

TEST(rank_environment, options_of_the_launcher_win_over_the_environment) {
  JobEnvironment job = job_of(1, 1);
  job.inherited = {"GYRE_LOG_LEVEL=error", "GYRE_TIMELINE=old"};
  job.log_level = "info";
  job.timeline = "/tmp/trace.json";
  const auto environment = rank_environment(job, 0);
  EXPECT_THAT(environment, IsSupersetOf({"GYRE_LOG_LEVEL=info", "GYRE_TIMELINE=/tmp/trace.json"}));
  EXPECT_THAT(environment, Not(Contains("GYRE_TIMELINE=old")));
}

TEST(rank_environment, shows_all_devices_unless_ranks_are_to_have_their_own) {
  JobEnvironment job = job_of(2, 8);
  EXPECT_THAT(rank_environment(job, 1), Each(Not(StartsWith("CUDA_VISIBLE_DEVICES="))));
  job.inherited.emplace_back("CUDA_VISIBLE_DEVICES=2,3,GPU-5");
  EXPECT_THAT(rank_environment(job, 1), Contains("CUDA_VISIBLE_DEVICES=2,3,GPU-5"));
}

/// A folder that has files for devices.
class RankDevices : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/gyre-devices-XXXXXX";
    devices_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(devices_); }

  void add(std::initializer_list<const char*> names) const {
    for (const char* name : names) std::ofstream(devices_ / name) << "";
  }
  std::vector<std::string> masked(std::vector<std::string> environment, int rank) const {
    set_device_masks(environment, rank, devices_);
    return environment;
  }
  std::string error_of(const std::vector<std::string>& environment, int rank) const {
    try {
      masked(environment, rank);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path devices_;
};

TEST_F(RankDevices, are_the_ranks_share) {
  add({"kfd"});
  EXPECT_THAT(masked({"GYRE_DEVICES_PER_RANK=2"}, 2),
              IsSupersetOf({"CUDA_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=4,5", "ZE_AFFINITY_MASK=4,5",
                            "ASCEND_RT_VISIBLE_DEVICES=4,5"}));
  // A mask that is there is divided, and no other vendor's is made.
  const std::vector<std::string> environment = {"GYRE_DEVICES_PER_RANK=2", "CUDA_VISIBLE_DEVICES=7,GPU-a,5,GPU-b"};
  EXPECT_THAT(masked(environment, 1), Contains("CUDA_VISIBLE_DEVICES=5,GPU-b"));
  EXPECT_THAT(masked(environment, 1), Each(Not(StartsWith("HIP_VISIBLE_DEVICES="))));
  EXPECT_EQ(
      error_of(environment, 2),
      "rank 2 of this host is to have 2 devices of its own (--devices-per-rank), but CUDA_VISIBLE_DEVICES names 4");
}

TEST_F(RankDevices, are_none_that_are_hidden_or_not_there) {
  for (const char* mask : {"", "nonsense", "0,0", "-1,0"}) {
    EXPECT_THAT(error_of({"GYRE_DEVICES_PER_RANK=1", std::string("CUDA_VISIBLE_DEVICES=") + mask}, 0),
                HasSubstr("CUDA_VISIBLE_DEVICES names 0"));
  }
  EXPECT_THAT(error_of({"GYRE_DEVICES_PER_RANK=1", "CUDA_VISIBLE_DEVICES=0,-1,1"}, 1), HasSubstr("names 1"));
  EXPECT_THAT(error_of({"GYRE_DEVICES_PER_RANK=4"}, 39),
              HasSubstr("rank 39 of this host is to have 4 devices of its own (--devices-per-rank), but the host shows "
                        "none"));
  add({"nvidia0", "nvidia1", "nvidiactl"});
  EXPECT_THAT(masked({"GYRE_DEVICES_PER_RANK=1"}, 1), Contains("CUDA_VISIBLE_DEVICES=1"));
  EXPECT_EQ(error_of({"GYRE_DEVICES_PER_RANK=1"}, 2),
            "rank 2 of this host is to have a device of its own (--devices-per-rank), but the host has 2 NVIDIA GPUs");
  EXPECT_THAT(error_of({"GYRE_DEVICES_PER_RANK=1", "CUDA_VISIBLE_DEVICES=99"}, 0), HasSubstr("names 0"));
}

TEST(rank_environment, leaves_parameter_servers_without_devices_of_their_own) {
  JobEnvironment job = job_of(2, 8);
  job.servers = 1;
  job.inherited.emplace_back("GYRE_DEVICES_PER_RANK=1");
  job.inherited.emplace_back("HIP_VISIBLE_DEVICES=5,6");
  EXPECT_THAT(rank_environment(job, 0), Contains("HIP_VISIBLE_DEVICES=5"));
  EXPECT_THAT(rank_environment(job, 1), Contains("HIP_VISIBLE_DEVICES=5,6"));
}

}  // namespace
}  // namespace gyre::launch
