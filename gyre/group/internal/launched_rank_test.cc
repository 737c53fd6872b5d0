// Those who share work by the launcher's numbers alone (a loader of samples) must get the same ones as those who join:
// a rank that believes to be alone repeats the others' work, and nobody notices.
#include "gyre/group/internal/launched_rank.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/group/internal/launch.h"

namespace gyre::group {
namespace {

using Map = std::map<std::string, std::string>;

Variables variables_of(const Map& map) {
  return [map](const char* name) {
    const auto found = map.find(name);
    return found == map.end() ? std::nullopt : std::optional(found->second);
  };
}

LaunchedPlace place_in(const Map& variables) { return launched_place(variables_of(variables)); }

StorePlace store_in(const Map& variables, bool launcher_is_visible = true) {
  return read_store_place(variables_of(variables), 1000, [&](const std::vector<std::string>& entries) {
    return launcher_is_visible ? "started " + entries.front() : "";
  });
}

Map with(Map base, const Map& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

const Map kMpirun{{"OMPI_COMM_WORLD_RANK", "2"},
                  {"OMPI_COMM_WORLD_SIZE", "4"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                  {"PMIX_NAMESPACE", "17"}};
const Map kSrun{{"SLURM_PROCID", "1"},         {"SLURM_STEP_NUM_TASKS", "5"},
                {"SLURM_STEP_ID", "0"},        {"SLURM_STEP_NODELIST", "node[01-03]"},
                {"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                {"SLURM_NODEID", "0"},         {"SLURM_JOB_ID", "812"}};
const Map kHydra{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}};

// Without a key file and an address, which only those need that join.
TEST(LaunchedPlace, rank_and_size_need_nothing_by_which_the_ranks_could_meet) {
  for (const auto& [variables, launcher, rank, size, local_size] :
       {std::tuple{kMpirun, "mpirun", 2, 4, 2}, std::tuple{kSrun, "srun", 1, 5, 2},
        std::tuple{with(kSrun, {{"SLURM_PROCID", "4"}, {"SLURM_NODEID", "2"}}), "srun", 4, 5, 1},
        std::tuple{kHydra, "hydra", 1, 4, 4}, std::tuple{Map{{"RANK", "3"}, {"WORLD_SIZE", "8"}}, "torchrun", 3, 8, 0},
        std::tuple{Map{{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}}, "horovodrun", 1, 2, 0},
        std::tuple{Map{{"GYRE_RANK", "1"}, {"GYRE_SIZE", "2"}, {"GYRE_LOCAL_SIZE", "1"}}, "gyre", 1, 2, 1},
        std::tuple{Map{{"PATH", "/bin"}}, "none", 0, 1, 0}}) {
    const LaunchedPlace place = place_in(variables);
    EXPECT_EQ(place.launcher, launcher);
    EXPECT_EQ(place.rank, rank) << launcher;
    EXPECT_EQ(place.size, size) << launcher;
    EXPECT_EQ(place.local_size, local_size) << launcher;
  }
}

TEST(LaunchedPlace, one_variable_of_a_pair_alone_is_an_error) {
  for (const char* name : {"RANK",
                           "WORLD_SIZE",
                           "GYRE_RANK",
                           "GYRE_SIZE",
                           "OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "PMI_RANK",
                           "PMI_SIZE",
                           "HOROVOD_RANK",
                           "HOROVOD_SIZE",
                           "MV2_COMM_WORLD_RANK",
                           "MV2_COMM_WORLD_SIZE",
                           "JSM_NAMESPACE_RANK",
                           "JSM_NAMESPACE_SIZE",
                           "FLUX_TASK_RANK",
                           "PALS_RANKID",
                           "FLUX_JOB_SIZE",
                           "FLUX_TASK_LOCAL_ID",
                           "PALS_LOCAL_SIZE",
                           "LOCAL_RANK",
                           "LOCAL_WORLD_SIZE",
                           "HOROVOD_LOCAL_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "GYRE_LOCAL_SIZE",
                           "SLURM_PROCID",
                           "SLURM_STEP_NUM_TASKS"}) {
    const std::string error = error_of([&] { place_in({{name, "2"}}); });
    EXPECT_NE(error.find(" not"), std::string::npos) << name << ": " << error;
  }
}

TEST(LaunchedPlace, an_incomplete_step_of_slurm_names_what_is_missing) {
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST"}) {
    Map step = kSrun;
    step.erase(name);
    const std::string error =
        error_of([&] { read_launch(variables_of(with(step, {{"GYRE_KEY_FILE", "/k"}})), 1000, {}); });
    EXPECT_NE(error.find(std::string(name) + " is not set"), std::string::npos) << error;
  }
  Map step = kSrun;
  step.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_NE(error_of([&] { place_in(step); }).find("SLURM_NTASKS is not set"), std::string::npos);
}

// What sbatch and salloc set without srun, and programs for their only rank.
TEST(LaunchedPlace, variables_that_a_process_alone_has_too_say_nothing) {
  for (const Map& alone : {Map{{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "812"}, {"SLURM_NPROCS", "4"}},
                           Map{{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_TASKS_PER_NODE", "4"}},
                           Map{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}},
                           Map{{"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}}, Map{{"FLUX_JOB_SIZE", "1"}}}) {
    const LaunchedPlace place = place_in(alone);
    EXPECT_EQ(place.launcher, "none");
    EXPECT_EQ(place.size, 1);
  }
}

TEST(LaunchedPlace, parameter_servers_share_no_work) {
  const Map worker{{"GYRE_RANK", "1"}, {"GYRE_SIZE", "5"}, {"GYRE_LOCAL_SIZE", "5"}, {"GYRE_SERVERS", "2"}};
  EXPECT_EQ(place_in(worker).rank, 1);
  EXPECT_EQ(place_in(worker).size, 3);
  EXPECT_EQ(place_in(worker).local_size, 3);
  EXPECT_EQ(place_in(with(worker, {{"GYRE_LOCAL_SIZE", "3"}, {"LOCAL_WORLD_SIZE", "2"}})).local_size, 2);
  EXPECT_NE(error_of([&] { place_in(with(worker, {{"GYRE_RANK", "3"}})); }).find("is a parameter server"),
            std::string::npos);
}

// One torchrun on each host, started there by something else: its ranks inherit the numbers of that.
TEST(LaunchedPlace, torchrun_under_another_launcher_is_nearer_to_its_ranks) {
  const Map inner{{"RANK", "9"}, {"WORLD_SIZE", "12"}, {"LOCAL_WORLD_SIZE", "4"}};
  const Map gyre{{"GYRE_RANK", "0"}, {"GYRE_SIZE", "1"}};
  for (const Map& outer : {kMpirun, kSrun, gyre}) {
    EXPECT_EQ(place_in(with(outer, inner)).launcher, "torchrun");
    EXPECT_EQ(place_in(with(outer, inner)).rank, 9);
  }
}

// Every launcher around torchrun with fewer, as many, and more ranks than that: the loader and the process group must
// agree about each.
TEST(LaunchedPlace, the_rank_of_every_pair_of_launchers) {
  const Map gyre{{"GYRE_RANK", "1"}, {"GYRE_SIZE", "4"}, {"TORCHELASTIC_RUN_ID", "none"}};
  const Map flux{{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "4"}, {"FLUX_JOB_ID", "f1"}};
  const Map mpirun = with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "1"}});
  const Map srun = with(kSrun, {{"SLURM_STEP_NUM_TASKS", "4"}});
  const Map horovodrun{{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "4"}};
  for (const auto& [name, outer] :
       {std::pair{"gyre", gyre}, std::pair{"mpirun", mpirun}, std::pair{"srun", srun}, std::pair{"flux", flux},
        std::pair{"hydra", kHydra}, std::pair{"horovodrun", horovodrun}}) {
    for (int size = 1; size <= 6; ++size) {
      for (int rank = 0; rank < size; ++rank) {
        SCOPED_TRACE(testing::Message() << name << " around " << rank << " of " << size);
        const Map both = with(outer, {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(size)}});
        // torchrun's own name for its ranks' errors, which is empty unless there is one.
        const LaunchedPlace under_torchrun =
            place_in(with(both, {{"TORCHELASTIC_RUN_ID", "none"}, {"TORCHELASTIC_ERROR_FILE", ""}}));
        EXPECT_EQ(under_torchrun.launcher, "torchrun");
        EXPECT_EQ(under_torchrun.rank, rank);
        EXPECT_EQ(under_torchrun.size, size);
        // Set by hand, or by `gyre run`.
        if (size > 4 || (size == 4 && rank == 1)) {
          const LaunchedPlace place = place_in(both);
          EXPECT_EQ(place.launcher, size > 4 ? "torchrun" : name);
          EXPECT_EQ(place.rank, rank);
          EXPECT_EQ(place.size, size);
        } else {
          const std::string error = error_of([&] { place_in(both); });
          EXPECT_NE(error.find("both cannot describe this process"), std::string::npos) << error;
        }
      }
    }
  }
}

TEST(LaunchedPlace, a_parameter_servers_own_rank_contradicts_nothing) {
  const Map job{{"GYRE_SIZE", "5"}, {"GYRE_SERVERS", "2"}, {"WORLD_SIZE", "3"}};
  EXPECT_EQ(place_in(with(job, {{"GYRE_RANK", "2"}, {"RANK", "2"}})).launcher, "gyre");
  EXPECT_NE(error_of([&] { place_in(with(job, {{"GYRE_RANK", "3"}, {"RANK", "3"}})); }).find("is a parameter server"),
            std::string::npos);
}

// A job over several hosts, a torchrun on each: GYRE_RENDEZVOUS is where the ranks of `gyre run` meet.
TEST(LaunchedPlace, torchrun_inside_gyre_run_meets_at_its_own_address) {
  const Map ranks{{"GYRE_RANK", "0"},
                  {"GYRE_SIZE", "2"},
                  {"GYRE_RENDEZVOUS", "tcp:node1:4000"},
                  {"RANK", "0"},
                  {"WORLD_SIZE", "2"},
                  {"LOCAL_WORLD_SIZE", "1"},
                  {"TORCHELASTIC_ERROR_FILE", ""},
                  {"MASTER_ADDR", "node1"},
                  {"MASTER_PORT", "29500"},
                  {"GYRE_KEY_FILE", "/k"}};
  const Launch launch = read_launch(variables_of(ranks), 1000, {});
  EXPECT_EQ(launch.launcher, "torchrun");
  EXPECT_EQ(launch.rendezvous.port, 29'501);
}

TEST(LaunchedPlace, the_tasks_of_a_node_of_slurms_lists) {
  const std::vector<int> counts = {4, 4, 3, 1};
  for (int node = 0; node < 4; ++node) EXPECT_EQ(tasks_on_node("4(x2),3,1", node), counts.at(node));
  for (const char* bad : {"", "4(x2", "4(y2)", "x", "4,,2", "4(x0)", "-1", "99999999999"}) {
    EXPECT_EQ(tasks_on_node(bad, 3), 0) << bad;
  }
}

TEST(StorePlace, ranks_of_one_host_meet_by_name_and_others_at_an_address) {
  const Map here = with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  StorePlace store = store_in(here);
  EXPECT_EQ(store.host, "");
  // Another one than that at which gyre.torch.init() hands out its key.
  EXPECT_TRUE(store.meeting_name.ends_with("-1000-store")) << store.meeting_name;
  EXPECT_NE(store.meeting_name, store_in(with(here, {{"PMIX_NAMESPACE", "18"}})).meeting_name);
  EXPECT_TRUE(store_in(kHydra).meeting_name.starts_with("gyre-hydra-"));

  store = store_in(kSrun);
  EXPECT_EQ(store.host, "node01");
  EXPECT_GE(store.port, 20'000);
  EXPECT_LT(store.port, 32'000);
  const Launch launch = read_launch(variables_of(with(kSrun, {{"GYRE_KEY_FILE", "/k"}})), 1000, {});
  EXPECT_NE(store.port, launch.rendezvous.port);

  for (const Map& apart : {kMpirun, with(kHydra, {{"MPI_LOCALNRANKS", "2"}})}) {
    EXPECT_NE(error_of([&] { store_in(apart); }).find("set MASTER_ADDR to rank 0's host"), std::string::npos);
    store = store_in(with(apart, {{"GYRE_RENDEZVOUS", "tcp:node9:4000"}}));
    EXPECT_EQ(store.host, "node9");
    EXPECT_EQ(store.port, 3999);
  }
  EXPECT_NE(error_of([] { store_in(kHydra, false); }).find("set MASTER_ADDR to rank 0's host"), std::string::npos);
}

TEST(StorePlace, what_the_user_has_set_wins_and_half_of_it_is_an_error) {
  const StorePlace store = store_in(with(kSrun, {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}}));
  EXPECT_EQ(store.host, "node7");
  EXPECT_EQ(store.port, 29'500);
  EXPECT_EQ(error_of([] { store_in(with(kSrun, {{"MASTER_ADDR", "node7"}})); }),
            "MASTER_ADDR is set, but MASTER_PORT is not, and torch's store needs both; set MASTER_PORT to a port that "
            "is free there on all ranks, or unset MASTER_ADDR to let Gyre choose both");
  EXPECT_NE(error_of([] { store_in(with(kHydra, {{"MASTER_PORT", "1"}})); }).find("MASTER_ADDR is not"),
            std::string::npos);
}

// They were two hashes: equal for one step in 12,000.
TEST(StorePlace, the_two_ports_of_a_slurm_step_differ) {
  for (int job = 0; job < 40'000; ++job) {
    const Map step = with(kSrun, {{"SLURM_JOB_ID", std::to_string(job)}, {"GYRE_KEY_FILE", "/k"}});
    const std::uint16_t port = read_launch(variables_of(step), 1000, {}).rendezvous.port;
    const std::uint16_t store = store_in(step).port;
    ASSERT_NE(port, store) << job;
    ASSERT_TRUE(port >= 20'000 && port < 32'000 && store >= 20'000 && store < 32'000) << job;
  }
}

TEST(StorePlace, a_port_reaches_every_rank_of_the_host) {
  const std::string name = "gyre-port-test-" + std::to_string(::getpid());
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  std::vector<int> ports(4);
  std::vector<std::thread> ranks;
  for (int rank = 1; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] { ports.at(rank) = fetch_port(name, rank, deadline); });
  }
  hand_out_port(name, 4, 54'321, deadline);
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(ports, (std::vector<int>{0, 54'321, 54'321, 54'321}));
}

}  // namespace
}  // namespace gyre::group
