// Resources, their names and their lists; one process at a time; and a page of a long list, which must not take longer
// the further back it stands.
#include "gyre/jobs/catalog/catalog.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <set>
#include <thread>

#include "gyre/jobs/catalog/catalog_test_support.h"
#include "gyre/jobs/catalog/internal/job_rows.h"
#include "gyre/jobs/catalog/names.h"

namespace gyre::jobs::catalog {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class CatalogTest : public testing::Test {
 protected:
  TemporaryFolder folder_;
  Catalog catalog_ = Catalog::open(folder_.file());
};

TEST_F(CatalogTest, names_have_1_to_64_letters_digits_dashes_and_underscores) {
  for (const std::string& good : {std::string("a"), std::string("A-z_09"), std::string(64, 'x')}) {
    EXPECT_NO_THROW(check_name(good, "job name"));
  }
  for (const std::string& bad :
       {std::string(), std::string(65, 'x'), std::string("a/b"), std::string(".."), std::string("a b"),
        std::string("\xc3\xa4"), std::string("a\n"), std::string("a\0b", 3)}) {
    EXPECT_EQ(error_of([&] { check_name(bad, "job name"); }).code(), ErrorCode::kInvalidArgument) << bad;
  }
  EXPECT_LT(std::string(error_of([] { check_name(std::string(1 << 20, 'x'), "job name"); }).what()).size(), 200U);
}

TEST_F(CatalogTest, every_resource_checks_its_name_and_that_it_is_free) {
  const Scene scene(catalog_);
  scene.submit("j");
  EXPECT_THROW(catalog_.workspaces().create("a/b", "here"), Error);
  EXPECT_THROW(catalog_.workspaces().create("w", "here"), Error);
  EXPECT_THROW(catalog_.experiments().create(scene.workspace.id, "e"), Error);
  EXPECT_THROW(catalog_.clusters().create({.workspace = scene.workspace.id, .name = "c"}), Error);
  EXPECT_THROW(scene.submit("j"), Error);
  EXPECT_THROW(scene.submit(".."), Error);
  const Workspace other = catalog_.workspaces().create("v", "here");
  EXPECT_NO_THROW(catalog_.experiments().create(other.id, "e"));
}

TEST_F(CatalogTest, nothing_is_deleted_that_others_need) {
  const Scene scene(catalog_, 1);
  const Job job = scene.submit("j");
  EXPECT_THROW(catalog_.workspaces().remove(scene.workspace.id), Error);
  EXPECT_THROW(catalog_.experiments().remove(scene.experiment.id), Error);
  EXPECT_THROW(catalog_.clusters().remove(scene.cluster.id), Error);
  catalog_.jobs().start_deletion(job.id, kCause);
  catalog_.jobs().remove(job.id);
  catalog_.clusters().change(scene.cluster.id, ProvisioningState::kDeleting, kCause);
  EXPECT_THROW(catalog_.clusters().remove(scene.cluster.id), Error);  // It has a node.
  EXPECT_THROW(scene.submit("k"), Error);
  EXPECT_THROW(catalog_.nodes().plan(scene.cluster.id, "new", kCause), Error);
  catalog_.nodes().change(scene.nodes[0], NodeState::kLeaving, kCause);
  catalog_.nodes().remove(scene.nodes[0], kCause);
  catalog_.clusters().remove(scene.cluster.id);
  catalog_.experiments().remove(scene.experiment.id);
  catalog_.workspaces().remove(scene.workspace.id);
  EXPECT_FALSE(catalog_.workspaces().find("w"));
}

TEST_F(CatalogTest, illegal_changes_are_refused_in_words_and_equal_ones_do_nothing) {
  const Scene scene(catalog_);
  const Error error =
      error_of([&] { catalog_.clusters().change(scene.cluster.id, ProvisioningState::kFailed, kCause); });
  EXPECT_STREQ(error.what(), "cluster 'c' cannot change from succeeded to failed");
  EXPECT_THROW(catalog_.nodes().change(scene.nodes[0], NodeState::kRunning, kCause), Error);
  const Id latest = catalog_.events().latest();
  catalog_.nodes().change(scene.nodes[0], NodeState::kIdle, kCause);
  catalog_.clusters().change(scene.cluster.id, AllocationState::kSteady, kCause);
  EXPECT_EQ(catalog_.events().latest(), latest);
}

TEST_F(CatalogTest, everything_is_there_after_the_file_is_opened_again) {
  std::string uuid;
  Id latest = 0;
  {
    Scene scene(catalog_);
    const Job job = scene.submit("j");
    uuid = job.uuid;
    catalog_.attempts().plan(job.id, 1, scene.nodes, kCause);
    catalog_.clusters().set_scale(scene.cluster.id, "{\"manual\":{}}", kCause);
    latest = catalog_.events().latest();
    const Catalog closed = std::move(catalog_);
  }
  Catalog again = Catalog::open(folder_.file());
  const auto workspace = again.workspaces().find("w");
  ASSERT_TRUE(workspace);
  EXPECT_EQ(again.clusters().find(workspace->id, "c")->scale, "{\"manual\":{}}");
  const auto experiment = again.experiments().find(workspace->id, "e");
  EXPECT_EQ(again.jobs().find(experiment->id, "j")->uuid, uuid);
  EXPECT_EQ(again.attempts().unended()[0].nodes.size(), 2U);
  EXPECT_EQ(again.events().latest(), latest);
}

TEST_F(CatalogTest, only_its_owner_can_read_the_file) {
  struct stat status{};
  ASSERT_EQ(::stat(folder_.file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  ASSERT_EQ(::stat((folder_.file().string() + "-wal").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(CatalogTest, a_second_service_is_refused_and_told_who_has_it) {
  // Two of them would start everything twice.
  const Error error = error_of([&] { Catalog::open(folder_.file()); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("is in use by process " + std::to_string(::getpid())));
}

// A service that was killed between the fork and the exec of a node program: the fork has its lock for a moment longer.
TEST_F(CatalogTest, a_lock_that_a_dead_service_has_left_to_a_process_it_was_starting_is_waited_for) {
  const TemporaryFolder folder;
  const std::string lock = folder.file().string() + ".lock";
  std::array<int, 2> hold{};
  std::array<int, 2> held{};
  ASSERT_EQ(::pipe(hold.data()), 0);
  ASSERT_EQ(::pipe(held.data()), 0);
  const pid_t service = ::fork();
  if (service == 0) {
    const int fd = ::open(lock.c_str(), O_RDWR | O_CREAT, 0600);
    const std::string self = std::to_string(::getpid());
    const bool ready = ::flock(fd, LOCK_EX) == 0 && ::write(fd, self.data(), self.size()) > 0;
    if (ready && ::fork() > 0) ::_exit(0);
    ::close(hold[1]);
    char byte = 0;
    [[maybe_unused]] const ssize_t told = ::write(held[1], "x", 1);
    [[maybe_unused]] const ssize_t end = ::read(hold[0], &byte, 1);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(service, &status, 0), service);
  char byte = 0;
  ASSERT_EQ(::read(held[0], &byte, 1), 1);
  std::thread next([&] { EXPECT_EQ(Catalog::open(folder.file()).events().latest(), 0); });
  for (const int fd : {hold[1], hold[0], held[0], held[1]}) ::close(fd);
  next.join();
}

TEST_F(CatalogTest, events_can_be_followed_from_any_number) {
  const Scene scene(catalog_);
  const Id before = catalog_.events().latest();
  scene.submit("j");
  scene.submit("k");
  const auto fresh = catalog_.events().list({}, {.after = before});
  ASSERT_THAT(fresh.items, SizeIs(2));
  EXPECT_EQ(fresh.items[0].sequence, before + 1);
  EXPECT_EQ(fresh.items[0].name, "j");
  EXPECT_FALSE(fresh.next);
  EXPECT_THAT(catalog_.events().list({.cluster = scene.cluster.id}).items, SizeIs(10));
  EXPECT_THROW(catalog_.events().list({.cluster = 1, .job = 1}), Error);
}

TEST_F(CatalogTest, pages_have_every_item_once_also_while_items_come_and_go) {
  const Scene scene(catalog_);
  std::vector<Job> jobs;
  for (int i = 0; i < 10; ++i) jobs.push_back(scene.submit("j" + std::to_string(i)));
  auto page = catalog_.jobs().list({.experiment = scene.experiment.id}, {.limit = 4});
  ASSERT_THAT(page.items, SizeIs(4));
  ASSERT_TRUE(page.next);
  catalog_.jobs().start_deletion(jobs[1].id, kCause);
  catalog_.jobs().remove(jobs[1].id);
  page = catalog_.jobs().list({.experiment = scene.experiment.id}, {.after = *page.next, .limit = 6});
  ASSERT_THAT(page.items, SizeIs(6));
  EXPECT_EQ(page.items[0].id, jobs[4].id);
  EXPECT_FALSE(page.next);
  const auto newest = catalog_.jobs().list({}, {.limit = 2, .newest_first = true});
  EXPECT_EQ(newest.items[1].id, jobs[8].id);
  const auto rest = catalog_.jobs().list({}, {.after = *newest.next, .limit = 1, .newest_first = true});
  EXPECT_EQ(rest.items[0].id, jobs[7].id);
}

TEST_F(CatalogTest, a_page_of_nothing_or_of_everything_is_refused) {
  EXPECT_THROW(catalog_.jobs().list({}, {.limit = 0}), Error);
  EXPECT_THROW(catalog_.jobs().list({}, {.limit = kLongestPage + 1}), Error);
  EXPECT_THROW(catalog_.jobs().list({.workspace = 1, .cluster = 1}), Error);
}

TEST_F(CatalogTest, jobs_are_counted_by_state) {
  const Scene scene(catalog_);
  scene.submit("j");
  scene.submit("k");
  catalog_.jobs().terminate(scene.submit("l").id, kCause);
  const auto counts = catalog_.jobs().count({.workspace = scene.workspace.id});
  EXPECT_THAT(counts,
              ElementsAre(testing::Pair(ExecutionState::kQueued, 2), testing::Pair(ExecutionState::kFailed, 1)));
}

/// A hundred thousand finished jobs, made without their lives, which would take minutes.
void add_finished_jobs(Database& database, const Scene& scene, int count) {
  Transaction transaction(database);
  database.run(
      "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1) "
      "INSERT INTO jobs (uuid, workspace_id, experiment_id, cluster_id, name, spec, created_us, provisioning_state, "
      "provisioning_us, execution_state, execution_us, attempts, start_us, end_us, exit_code) "
      "SELECT 'u' || n, ?2, ?3, ?4, 'old' || n, ?5, n, 'succeeded', n, iif(n % 10, 'succeeded', 'failed'), n, 1, n, n, "
      "0 "
      "FROM numbers",
      count, scene.workspace.id, scene.experiment.id, scene.cluster.id, std::string(1000, ' '));
  transaction.commit();
}

std::string plan_of(Database& database, const JobFilter& filter) {
  Query query(database, "EXPLAIN QUERY PLAN " + list_jobs_statement(filter, {}));
  std::string plan;
  while (query.next()) plan += query.text(3) + "\n";
  return plan;
}

TEST_F(CatalogTest, a_page_of_a_hundred_thousand_finished_jobs_is_found_by_an_index) {
  const Scene scene(catalog_);
  {
    const Catalog closed = std::move(catalog_);
  }
  Database database(folder_.file());
  add_finished_jobs(database, scene, 100'000);
  const std::vector<JobFilter> filters = {{},
                                          {.workspace = scene.workspace.id},
                                          {.experiment = scene.experiment.id},
                                          {.cluster = scene.cluster.id},
                                          {.workspace = scene.workspace.id, .state = ExecutionState::kFailed},
                                          {.experiment = scene.experiment.id, .state = ExecutionState::kQueued},
                                          {.cluster = scene.cluster.id, .state = ExecutionState::kSucceeded}};
  for (const JobFilter& filter : filters) {
    const std::string plan = plan_of(database, filter);
    EXPECT_THAT(plan, HasSubstr("SEARCH jobs USING")) << plan;
    EXPECT_THAT(plan, testing::Not(HasSubstr("TEMP B-TREE"))) << plan;
  }
  Catalog full = Catalog::open(folder_.file());
  const auto start = std::chrono::steady_clock::now();
  const auto page = full.jobs().list({.workspace = scene.workspace.id, .state = ExecutionState::kFailed},
                                     {.after = 90'000, .limit = 100});
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  ASSERT_THAT(page.items, SizeIs(100));
  EXPECT_EQ(page.items[0].name, "old90010");
  std::printf("a page of 100 of 100,000 finished jobs: %.2f ms\n", took.count());
}

}  // namespace
}  // namespace gyre::jobs::catalog
