// A program starts under many launchers; taking one for another means waiting for ranks that never come.
#include "gyre/group/internal/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "gyre/base/error.h"
#include "gyre/group/internal/rendezvous/local_key.h"

namespace gyre::group {
namespace {

using Map = std::map<std::string, std::string>;

Launch launch_of(const Map& variables) {
  return read_launch(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      1000, [](const std::vector<std::string>& entries) { return "started " + entries.front(); });
}

Map with(Map base, const Map& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

const Map kGyre{{"GYRE_RANK", "1"},       {"GYRE_SIZE", "4"},   {"GYRE_LOCAL_RANK", "1"},
                {"GYRE_LOCAL_SIZE", "4"}, {"GYRE_KEY_FD", "7"}, {"GYRE_RENDEZVOUS", "unix:@gyre-1"}};
const Map kMpirun{{"OMPI_COMM_WORLD_RANK", "2"},
                  {"OMPI_COMM_WORLD_SIZE", "4"},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                  {"PMIX_NAMESPACE", "1733492737"}};
const Map kTorchrun{{"RANK", "3"},
                    {"WORLD_SIZE", "4"},
                    {"LOCAL_RANK", "3"},
                    {"LOCAL_WORLD_SIZE", "4"},
                    {"MASTER_ADDR", "node1"},
                    {"MASTER_PORT", "29500"},
                    {"TORCHELASTIC_RUN_ID", "none"},
                    {"TORCHELASTIC_ERROR_FILE", ""},
                    {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Map kSrun{{"SLURM_PROCID", "1"},   {"SLURM_NTASKS", "8"},  {"SLURM_STEP_NUM_TASKS", "2"},
                {"SLURM_LOCALID", "1"},  {"SLURM_NNODES", "1"},  {"SLURM_STEP_NUM_NODES", "1"},
                {"SLURM_JOB_ID", "812"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "node[01-03,7]"}};

const Map kHydra{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMI_FD", "8"}, {"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "1"}};
const Map kMvapich{
    {"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "4"}, {"MV2_COMM_WORLD_LOCAL_SIZE", "4"}, {"PMI_ID", "1"}};
const Map kPals{
    {"PALS_RANKID", "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PALS_LOCAL_SIZE", "4"}, {"PALS_APID", "a"}};
const Map kFlux{{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "4"}, {"FLUX_JOB_NNODES", "1"},
                {"FLUX_JOB_ID", "f"},    {"PMI_RANK", "1"},      {"PMI_SIZE", "4"}};
const Map kJsrun{{"JSM_NAMESPACE_RANK", "1"},
                 {"JSM_NAMESPACE_SIZE", "4"},
                 {"JSM_NAMESPACE_LOCAL_SIZE", "4"},
                 {"OMPI_COMM_WORLD_RANK", "1"},
                 {"OMPI_COMM_WORLD_SIZE", "4"}};
const Map kHorovodrun{{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "4"}, {"HOROVOD_LOCAL_SIZE", "4"}};

void expect_invalid(const Map& variables, const std::string& part) {
  try {
    launch_of(variables);
    ADD_FAILURE() << "no error about " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Launch, without_a_launcher_a_process_is_a_job_of_one) {
  const Launch launch = launch_of({{"PATH", "/bin"}});
  EXPECT_EQ(launch.launcher, "none");
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.size, 1);
  EXPECT_EQ(launch.key_source, Launch::KeySource::kNone);
}

TEST(Launch, gyre_run_is_read) {
  Launch launch = launch_of(kGyre);
  EXPECT_EQ(launch.launcher, "gyre");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(net::to_string(launch.rendezvous), "unix:@gyre-1");
  EXPECT_EQ(launch.key_source, Launch::KeySource::kDescriptor);
  EXPECT_EQ(launch.key_descriptor, 7);
  EXPECT_EQ(launch.listener_descriptor, -1);
  launch = launch_of(with(
      kGyre, {{"GYRE_RANK", "0"}, {"GYRE_LOCAL_RANK", "0"}, {"GYRE_RENDEZVOUS_FD", "5"}, {"GYRE_FAILURE_FD", "6"}}));
  EXPECT_EQ(launch.listener_descriptor, 5);
  EXPECT_EQ(launch.failure_descriptor, 6);
}

TEST(Launch, mpirun_torchrun_and_srun_on_one_host_meet_at_a_unix_socket_of_the_user) {
  for (const auto& [variables, name, rank, size] :
       {std::tuple{kMpirun, "mpirun", 2, 4}, std::tuple{kTorchrun, "torchrun", 3, 4},
        std::tuple{kSrun, "srun", 1, 2}}) {
    const Launch launch = launch_of(variables);
    EXPECT_EQ(launch.launcher, name);
    EXPECT_EQ(launch.rank, rank);
    EXPECT_EQ(launch.size, size);
    EXPECT_EQ(launch.key_source, Launch::KeySource::kLocalSocket);
    EXPECT_TRUE(launch.local_name.starts_with(std::string("gyre-") + name + "-")) << launch.local_name;
    EXPECT_TRUE(launch.local_name.ends_with("-1000-key"));
    EXPECT_EQ(launch.rendezvous, net::Endpoint());
    for (const net::Endpoint& place : local_meeting_places(launch.local_name)) {
      EXPECT_EQ(net::parse_endpoint(net::to_string(place)), place);
    }
  }
}

TEST(Launch, two_jobs_of_one_user_never_meet) {
  const auto name = [](const Map& variables) { return launch_of(variables).local_name; };
  EXPECT_NE(name(kMpirun), name(with(kMpirun, {{"PMIX_NAMESPACE", "2"}})));
  EXPECT_NE(name(kTorchrun), name(with(kTorchrun, {{"MASTER_PORT", "29501"}})));
  EXPECT_NE(name(kTorchrun), name(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})));
  EXPECT_NE(name(kSrun), name(with(kSrun, {{"SLURM_STEP_ID", "1"}})));
  EXPECT_NE(name(kSrun), name(with(kSrun, {{"SLURM_JOB_ID", "813"}})));
}

TEST(Launch, the_launcher_nearest_to_the_process_wins) {
  Map all = with(with(with(kSrun, kTorchrun), kMpirun), kGyre);
  EXPECT_EQ(launch_of(all).launcher, "torchrun");
  all.erase("TORCHELASTIC_ERROR_FILE");  // `gyre run` sets the others itself.
  EXPECT_EQ(launch_of(with(all, {{"RANK", "1"}, {"WORLD_SIZE", "4"}})).launcher, "gyre");
  EXPECT_EQ(launch_of(with(kSrun, kMpirun)).launcher, "mpirun");
  EXPECT_EQ(launch_of(with(kSrun, kTorchrun)).launcher, "torchrun");
}

TEST(Launch, a_plain_process_inside_a_slurm_allocation_is_a_job_of_one) {
  const Map batch_script{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_ID", "812"}, {"SLURM_NNODES", "1"}};
  EXPECT_EQ(launch_of(batch_script).size, 1);
  EXPECT_EQ(launch_of(with(batch_script, {{"SLURM_NTASKS", "4"}})).size, 1);
  EXPECT_EQ(launch_of({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "812"}}).size, 1);
}

TEST(Launch, several_hosts_need_a_key_file_and_meet_over_tcp) {
  for (const char* port : {"abc", "0", "65536", "29500 "}) {
    expect_invalid(with(kTorchrun, {{"MASTER_PORT", port}}), "MASTER_PORT");
  }
  const Map torchrun = with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}});
  expect_invalid(torchrun, "GYRE_KEY_FILE");
  Launch launch = launch_of(with(torchrun, {{"GYRE_KEY_FILE", "/home/me/key"}}));
  EXPECT_EQ(net::to_string(launch.rendezvous), "tcp:node1:29501");
  EXPECT_EQ(launch.key_source, Launch::KeySource::kFile);
  EXPECT_EQ(launch.key_file, "/home/me/key");

  const Map srun = with(kSrun, {{"SLURM_STEP_NUM_NODES", "2"}});
  expect_invalid(srun, "GYRE_KEY_FILE");
  launch = launch_of(with(srun, {{"GYRE_KEY_FILE", "/home/me/key"}}));
  EXPECT_EQ(launch.rendezvous.host, "node01");
  EXPECT_GE(launch.rendezvous.port, 20'000);
  EXPECT_LT(launch.rendezvous.port, 32'000);

  const Map mpirun = with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  expect_invalid(mpirun, "MASTER_ADDR");
  const Map chosen = with(mpirun, {{"GYRE_RENDEZVOUS", "tcp:node9:4000"}});
  expect_invalid(chosen, "GYRE_KEY_FILE");
  launch = launch_of(with(chosen, {{"GYRE_KEY_FILE", "/home/me/key"}}));
  EXPECT_EQ(net::to_string(launch.rendezvous), "tcp:node9:4000");
}

TEST(Launch, launchers_that_only_number_their_ranks_have_them_meet_by_the_launchers_process) {
  for (const auto& [variables, name, rank, changed] :
       {std::tuple{kHydra, "hydra", "PMI_RANK", Map{{"MPI_LOCALNRANKS", "2"}}},
        std::tuple{kMvapich, "mvapich", "MV2_COMM_WORLD_RANK", Map{{"MV2_COMM_WORLD_LOCAL_SIZE", "2"}}},
        std::tuple{kPals, "pals", "PALS_RANKID", Map{{"PALS_LOCAL_SIZE", "2"}}},
        std::tuple{kFlux, "flux", "FLUX_TASK_RANK", Map{{"FLUX_JOB_NNODES", "2"}}},
        std::tuple{kJsrun, "jsrun", "JSM_NAMESPACE_RANK", Map{{"JSM_NAMESPACE_LOCAL_SIZE", "2"}}},
        std::tuple{kHorovodrun, "horovodrun", "HOROVOD_RANK", Map{{"HOROVOD_LOCAL_SIZE", "2"}}}}) {
    const Launch launch = launch_of(variables);
    EXPECT_EQ(launch.launcher, name);
    EXPECT_EQ(launch.rank, 1);
    EXPECT_EQ(launch.size, 4);
    EXPECT_EQ(launch.key_source, Launch::KeySource::kLocalSocket);
    EXPECT_TRUE(launch.local_name.starts_with(std::string("gyre-") + name + "-")) << launch.local_name;
    EXPECT_NE(launch.job_id.find(std::string("started ") + rank + "=1"), std::string::npos) << launch.job_id;
    // On several hosts there is no such process.
    const Map apart = with(variables, changed);
    expect_invalid(apart, "MASTER_ADDR is not set");
    const Map chosen = with(apart, {{"GYRE_RENDEZVOUS", "tcp:node9:4000"}});
    expect_invalid(chosen, "GYRE_KEY_FILE is not set");
    EXPECT_EQ(net::to_string(launch_of(with(chosen, {{"GYRE_KEY_FILE", "/k"}})).rendezvous), "tcp:node9:4000");
  }
  EXPECT_EQ(launch_of(with(kHydra, {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "1"}})).size, 1);
}

TEST(Launch, hydra_inside_an_allocation_is_told_from_the_task_that_brought_it_there) {
  // Slurm's own tasks may carry its variables as well; they then agree.
  EXPECT_EQ(launch_of(with(kSrun, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})).launcher, "srun");
  // Hydra's helpers are tasks, one on each of two hosts; the ranks inherit their numbers.
  const Map inside = with(
      with(kSrun, kHydra),
      {{"PMI_RANK", "3"}, {"GYRE_KEY_FILE", "/k"}, {"MPI_LOCALNRANKS", "2"}, {"GYRE_RENDEZVOUS", "tcp:node9:4000"}});
  EXPECT_EQ(launch_of(inside).launcher, "hydra");
  EXPECT_EQ(launch_of(inside).rank, 3);
  EXPECT_EQ(launch_of(with(inside, {{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}})).launcher, "hydra");
  EXPECT_EQ(launch_of(with(kFlux, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "8"}})).launcher, "hydra");
  // The other way round: a Slurm step that one rank of a job of one has started.
  EXPECT_EQ(launch_of(with(kSrun, {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}})).launcher, "srun");
}

TEST(Launch, one_of_several_that_cannot_tell_which_is_an_error_and_no_job_of_one) {
  expect_invalid({{"PMI_ID", "1"}}, "PMI_ID is '1', so a launcher started this process as one of several");
  for (const char* name : {"PMIX_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "WORLD_SIZE", "HOROVOD_SIZE"}) {
    expect_invalid({{name, "2"}}, std::string("unset ") + name + " to run alone");
  }
  for (const char* name : {"PMI_SIZE", "MPI_LOCALNRANKS", "WORLD_SIZE"}) EXPECT_EQ(launch_of({{name, "1"}}).size, 1);
  expect_invalid({{"PMI_RANK", "0"}}, "PMI_SIZE is not set");
}

TEST(Launch, a_wrong_or_missing_variable_is_named) {
  expect_invalid(with(kGyre, {{"GYRE_RANK", "4"}}), "GYRE_RANK is '4'; a whole number from 0 to 3");
  expect_invalid(with(kGyre, {{"GYRE_SIZE", "x"}}), "GYRE_SIZE is 'x'");
  expect_invalid(with(kGyre, {{"GYRE_RENDEZVOUS", "here"}}), "'here' is not an endpoint");
  expect_invalid({{"GYRE_RANK", "0"}}, "GYRE_SIZE is not set");
  expect_invalid({{"GYRE_RANK", "0"}, {"GYRE_SIZE", "2"}}, "GYRE_RENDEZVOUS is not set");
  expect_invalid({{"GYRE_RANK", "0"}, {"GYRE_SIZE", "2"}, {"GYRE_RENDEZVOUS", "unix:@x"}}, "GYRE_KEY_FD is not set");
  expect_invalid(with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "-1"}}), "OMPI_COMM_WORLD_RANK");
  expect_invalid(with(kTorchrun, {{"RANK", "9"}}), "RANK is '9'");
  expect_invalid(with(kSrun, {{"SLURM_PROCID", "9"}}), "SLURM_PROCID is '9'");
}

TEST(Launch, the_first_host_of_slurms_lists) {
  EXPECT_EQ(first_slurm_host("node[01-03,7]"), "node01");
  EXPECT_EQ(first_slurm_host("node7"), "node7");
  EXPECT_EQ(first_slurm_host("a,b"), "a");
  EXPECT_EQ(first_slurm_host("rack[2-3]-gpu[5,9]x,login"), "rack2-gpu5x");
  for (const char* bad : {"", ",a", "node[1"}) EXPECT_THROW(first_slurm_host(bad), Error) << bad;
}

}  // namespace
}  // namespace gyre::group
