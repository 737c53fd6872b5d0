// What is handed to Slurm, and how its answers are read: without a Slurm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "gyre/base/error.h"
#include "gyre/jobs/drivers/slurm/driver.h"
#include "gyre/jobs/drivers/slurm/internal/commands.h"
#include "gyre/jobs/drivers/slurm/internal/script.h"
#include "gyre/jobs/drivers/test_support.h"

namespace gyre::jobs::drivers::slurm {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::string refusal_of(const std::map<std::string, std::string>& options) {
  try {
    options_from(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "it was accepted";
}

TEST(SlurmOptionsOfAClusters, wrong_missing_and_unknown_options_are_named) {
  EXPECT_THAT(refusal_of({{"shared_folder", "here"}}), HasSubstr("absolute path"));
  EXPECT_THAT(refusal_of({{"shared_folder", "/s"}, {"port", "high"}}), HasSubstr("from 1 to 65535"));
  EXPECT_THAT(refusal_of({{"shared_folder", "/s"}, {"partion", "gpu"}}), HasSubstr("partition"));
  EXPECT_THAT(refusal_of({{"shared_folder", "/s"}, {"partition", "gpu\nx"}}), HasSubstr("a line of text"));
  EXPECT_EQ(options_from({{"shared_folder", "/s/"}, {"partition", "gpu"}}).sbatch.at("partition"), "gpu");
  EXPECT_EQ(options_from({}).shared_folder, "");
}

WorkOrder an_order() {
  WorkOrder order;
  order.attempt = "u-u-i-d-1";
  order.job_name = "train";
  order.job.max_wall_clock_time = std::chrono::hours(1);
  order.nodes = {{"node-1", "", 1, 0}, {"node-2", "", 1, 0}};
  return order;
}

Service a_service() { return {.name = "s1", .place = net::parse_endpoint("tcp:10.0.0.1:7000")}; }

// Whose a job is, and what it has said at its end, is in its comment; users may have written others.
TEST(SlurmComments, tell_the_service_and_the_last_words) {
  const std::string comment = comment_of(a_service());
  const auto service = service_in(comment + "; it ended; so there");
  ASSERT_TRUE(service);
  EXPECT_EQ(service->name, "s1");
  EXPECT_EQ(net::to_string(service->place), "tcp:10.0.0.1:7000");
  EXPECT_EQ(words_in(comment + "; it ended; so there"), "it ended; so there");
  EXPECT_EQ(words_in(comment), "");
  for (const char* other : {"", "(null)", "mine; all mine", "gyre service", "gyre service s1 at nowhere"}) {
    EXPECT_FALSE(service_in(other)) << other;
    EXPECT_EQ(words_in(other), "") << other;
  }
}

TEST(SlurmScripts, an_attempt_is_one_job_with_one_node_program_on_each_node) {
  SlurmOptions options;
  options.sbatch = {{"partition", "gpu"}};
  options.gyre = "/opt/it's gyre";
  const Home home("/service");
  const auto arguments = sbatch_arguments(options, home, a_service(), an_order());
  EXPECT_THAT(arguments, Contains("--nodes=2"));
  EXPECT_THAT(arguments, Contains("--time=90"));
  EXPECT_THAT(arguments, Contains("--partition=gpu"));
  EXPECT_THAT(arguments, Contains("--job-name=gyre-u-u-i-d-1"));
  EXPECT_THAT(arguments, Contains("--comment=gyre service s1 at tcp:10.0.0.1:7000"));
  EXPECT_EQ(arguments.back(), "/service/attempts/u-u-i-d-1/batch.sh");
  const std::string script = batch_script(options, a_service(), an_order(), "the key");
  EXPECT_THAT(script, HasSubstr("srun --nodes=2 --ntasks=2 --ntasks-per-node=1"));
  EXPECT_THAT(script, HasSubstr(R"('/opt/it'\''s gyre' agent --supervise --service 'tcp:10.0.0.1:7000')"));
  EXPECT_THAT(script, HasSubstr("--node u-u-i-d-1-\"$SLURM_PROCID\""));
  EXPECT_THAT(script, HasSubstr("\nthe key\n"));  // In no argument.
  // One question to the controller for each job, not one for each node.
  EXPECT_THAT(script, HasSubstr("scontrol --oneliner show node \"$SLURM_JOB_NODELIST\""));
}

TEST(SlurmScripts, a_time_of_the_sites_own_is_handed_on) {
  SlurmOptions options;
  options.sbatch = {{"time", "2-00"}};
  const auto arguments = sbatch_arguments(options, Home("/h"), a_service(), an_order());
  EXPECT_THAT(arguments, Contains("--time=2-00"));
  EXPECT_THAT(arguments, testing::Not(Contains("--time=90")));
}

TEST(SlurmScripts, the_gpus_that_a_job_asks_for_are_slurms_to_give) {
  SlurmOptions options;
  orders::WorkOrder order = an_order();
  EXPECT_THAT(sbatch_arguments(options, Home("/h"), a_service(), order), testing::Not(Contains(HasSubstr("gres"))));
  order.job.gpus_per_node = 0;
  EXPECT_THAT(sbatch_arguments(options, Home("/h"), a_service(), order), testing::Not(Contains(HasSubstr("gres"))));
  order.job.gpus_per_node = 2;
  EXPECT_THAT(sbatch_arguments(options, Home("/h"), a_service(), order), Contains("--gres=gpu:2"));
}

TEST(SlurmScripts, the_cores_and_the_memory_that_a_job_may_use_are_slurms_to_give) {
  SlurmOptions options;
  orders::WorkOrder order = an_order();
  order.job.cpus_per_node = 4;
  order.job.memory_per_node = "2g";
  const auto arguments = sbatch_arguments(options, Home("/h"), a_service(), order);
  EXPECT_THAT(arguments, Contains("--mincpus=4"));
  EXPECT_THAT(arguments, Contains("--mem=2097152K"));
}

TEST(SlurmDrivers, refuse_a_jobs_number_of_gpus_where_the_cluster_asks_for_its_own) {
  const conformance::PublicFolder folder;
  SlurmOptions options;
  options.folder = folder.path() / "state";
  const SlurmDriver driver(options);
  spec::JobSpec job;
  spec::ClusterSpec cluster;
  job.gpus_per_node = 2;
  EXPECT_NO_THROW(driver.check_job(job, cluster));
  EXPECT_EQ(driver.gpus_per_node(cluster), std::nullopt);
  cluster.gyre.driver_options = {{"gres", "gpu:a100:4"}};
  try {
    driver.check_job(job, cluster);
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("asks Slurm for 'gpu:a100:4' for all of its jobs (driverOptions.gres)"));
  }
  job.gpus_per_node.reset();
  EXPECT_NO_THROW(driver.check_job(job, cluster));
}

TEST(SlurmLists, jobs_are_read_and_what_is_not_one_is_left_out) {
  const auto jobs =
      parse_list("17|PENDING|Resources||mine|gyre-a-1\n18|RUNNING|None|n[1-2]|(null)|gyre|odd\nslurm_load: error\n");
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0], (ListedJob{"17", "PENDING", "Resources", "", "mine", "gyre-a-1"}));
  EXPECT_EQ(jobs[1].name, "gyre|odd");
}

// A job counts as over only when nothing of it runs: others get its nodes, or it runs again.
TEST(SlurmStates, a_job_that_is_being_ended_is_not_over) {
  EXPECT_FALSE(is_over("COMPLETING"));
  EXPECT_FALSE(is_over("SUSPENDED"));
  EXPECT_TRUE(is_over("CANCELLED"));
  EXPECT_TRUE(is_loss("NODE_FAIL"));
  EXPECT_FALSE(is_loss("TIMEOUT"));
}

}  // namespace
}  // namespace gyre::jobs::drivers::slurm
