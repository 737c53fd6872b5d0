// What an agent is started with, and what it is told: the key in no argument, and every byte as it was.
#include "gyre/launch/internal/hosts/description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::launch {
namespace {

using testing::ElementsAre;

HostsOptions two_hosts() {
  HostsOptions options;
  options.hosts = {{"localhost", 2}, {"ada@node2", 1}};
  options.ssh = {"ssh", "-p", "2222", "-i", "my key"};
  options.program = "/opt/it's/gyre";
  options.folder = "/home/ada";
  options.job.command = {"python", "train.py", "\xff"};
  options.job.environment = {"PATH=/bin", "GYRE_LATIN=caf\xe9"};
  options.job.grace = std::chrono::seconds(7);
  options.job.log_dir = "/home/ada/logs";
  return options;
}

TEST(description, other_hosts_are_reached_through_ssh_and_this_one_is_not) {
  const HostsOptions options = two_hosts();
  EXPECT_THAT(agent_command(options, options.hosts[0]), ElementsAre("/opt/it's/gyre", "run", "--agent"));
  const auto command = agent_command(options, options.hosts[1]);
  ASSERT_GT(command.size(), 3U);
  EXPECT_EQ(command[command.size() - 2], "ada@node2");
  EXPECT_THAT(command, testing::Contains("BatchMode=yes"));
  EXPECT_THAT(command.back(), testing::StartsWith("exec sh -c '"));
}

TEST(description, the_hint_about_a_host_key_can_be_pasted) {
  const HostsOptions options = two_hosts();
  EXPECT_EQ(explain_unreachable(options, options.hosts[1], "Host key verification failed."),
            "Host key verification failed. (`ssh -p 2222 -i 'my key' ada@node2`, once and by hand, makes it known)");
  EXPECT_EQ(explain_unreachable(options, options.hosts[1], "refused"), "refused");
}

TEST(description, an_agent_learns_its_part_and_every_byte) {
  const HostsOptions options = two_hosts();
  const JobPlace place = make_job_place(options, {{.store = 4711, .rendezvous = 4712}, {.store = 1, .rendezvous = 2}});
  EXPECT_NE(place.key, SecretKey());
  LaunchOptions own;
  own.environment = {"HOME=/home/other", "PATH=/usr/bin"};
  std::string folder;
  const LaunchOptions job = read_description(describe(options, place, 1), own, folder);
  EXPECT_EQ(folder, "/home/ada");
  EXPECT_EQ(job.command, options.job.command);
  EXPECT_THAT(job.environment, ElementsAre("HOME=/home/other", "PATH=/bin", "GYRE_LATIN=caf\xe9"));
  EXPECT_EQ(job.ranks, 1);
  EXPECT_EQ(job.grace, std::chrono::seconds(7));
  EXPECT_EQ(job.master_port, 4711);
  EXPECT_EQ(job.log_dir, options.job.log_dir);
  EXPECT_FALSE(job.forwards_logs);
  ASSERT_TRUE(job.part);
  EXPECT_EQ(job.part->node, 1);
  EXPECT_EQ(job.part->nodes, 2);
  EXPECT_THAT(job.part->ranks, ElementsAre(2));
  EXPECT_EQ(job.part->size, 3);
  EXPECT_THAT(job.part->rendezvous, testing::EndsWith(":4712"));
  EXPECT_EQ(job.part->key, place.key);
}

TEST(description, an_agent_passes_logs_on_where_somebody_keeps_copies) {
  HostsOptions options = two_hosts();
  options.log_copies = "/tmp/page";
  const JobPlace place = make_job_place(options, {{.store = 1, .rendezvous = 2}, {.store = 3, .rendezvous = 4}});
  std::string folder;
  EXPECT_TRUE(read_description(describe(options, place, 1), {}, folder).forwards_logs);
}

// Nodes of a job service may have a job's folder at different paths; ranks of one worked in another's.
TEST(description, ranks_that_would_start_in_the_launchers_folder_of_a_job_start_in_that_of_their_own_host) {
  EXPECT_EQ(own_folder("/n0/jobs/j", "/n0/jobs/j", "/n1/jobs/j"), "/n1/jobs/j");
  EXPECT_EQ(own_folder("/n0/jobs/j/code/src", "/n0/jobs/j/code", "/n1/jobs/j/code"), "/n1/jobs/j/code/src");
  for (const char* elsewhere : {"/n0/jobs/other", "/n0/jobs/j2", "/n0/jobs", "/", "/home/ada"}) {
    EXPECT_EQ(own_folder(elsewhere, "/n0/jobs/j", "/n1/jobs/j"), elsewhere);
  }
  EXPECT_EQ(own_folder("/home/ada", "", "/n1/jobs/j"), "/home/ada");
  EXPECT_EQ(own_folder("/home/ada", "/home/ada", ""), "/home/ada");
  HostsOptions options = two_hosts();
  options.environment = {"GYRE_JOB_FOLDER=/home", "GYRE_JOB_TIMELINE=1:/home/logs"};
  const JobPlace place = make_job_place(options, {{1, 2}, {3, 4}});
  std::string folder;
  LaunchOptions own;
  own.environment = {"GYRE_JOB_FOLDER=/scratch/job"};
  read_description(describe(options, place, 1), own, folder);
  EXPECT_EQ(folder, "/scratch/job/ada");
  EXPECT_THAT(for_other_hosts(options.environment), testing::IsEmpty());
}

TEST(description, the_rendezvous_is_on_the_first_servers_host_and_torchs_store_on_the_first_host) {
  HostsOptions options = two_hosts();
  options.hosts[0].name = "node1";
  options.hosts = place_servers(std::move(options.hosts), {"ada@node2", "node3"}, 3);
  options.job.servers = 3;
  const JobPlace place = make_job_place(options, {{1, 2}, {3, 4}, {5, 6}});
  EXPECT_EQ(place.store_address, "node1");
  EXPECT_EQ(place.store_port, 1);
  EXPECT_EQ(place.rendezvous, "tcp:node2:4");
  std::string folder;
  const LaunchOptions workers = read_description(describe(options, place, 0), {}, folder);
  EXPECT_THAT(workers.part->ranks, ElementsAre(0, 1));
  EXPECT_EQ(workers.servers, 3);
  EXPECT_EQ(workers.part->size, 6);
  const LaunchOptions both = read_description(describe(options, place, 1), {}, folder);
  EXPECT_THAT(both.part->ranks, ElementsAre(2, 3, 5));
  EXPECT_EQ(both.ranks, 3);
  EXPECT_THAT(read_description(describe(options, place, 2), {}, folder).part->ranks, ElementsAre(4));
}

TEST(description, what_is_none_is_refused) {
  std::string folder;
  for (const char* line : {"", "{}", "[]", "{\"command\": 3}", "nonsense"}) {
    EXPECT_THROW(read_description(line, {}, folder), Error) << line;
  }
}

TEST(description, other_hosts_get_what_concerns_the_ranks_and_no_more) {
  EXPECT_THAT(
      for_other_hosts({"PATH=/bin", "PATHS=x", "PYTHONPATH=a", "HOME=/home/ada", "OMP_NUM_THREADS=2", "LC_ALL=C",
                       "GYRE_TLS=0", "GYRE_RANK=3", "GYRE_KEY_FILE=k", "GYRE_LAUNCH=x", "TORCH_LOGS=all",
                       "TORCHELASTIC_RUN_ID=x", "AWS_SECRET=x"}),
      ElementsAre("PATH=/bin", "PYTHONPATH=a", "OMP_NUM_THREADS=2", "LC_ALL=C", "GYRE_TLS=0", "TORCH_LOGS=all"));
}

}  // namespace
}  // namespace gyre::launch
