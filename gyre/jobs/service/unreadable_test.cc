// One record that cannot be read, or one attempt that cannot be started, must be named and must not stop the rest: a
// newer Gyre may have written the record, and a disk may be full.
#include <sqlite3.h>

#include <csignal>

#include "gyre/jobs/service/internal/records.h"
#include "gyre/jobs/service/service_test_support.h"

namespace gyre::jobs::service {
namespace {

constexpr const char* kDamaged[] = {"{", "[]", R"({"properties": {"nodeCount": "many"}})", ""};

class UnreadableTest : public JobServiceTest {
 protected:
  /// While no service has the catalog.
  void change_catalog(const std::string& statement) {
    service_.reset();
    sqlite3* catalog = nullptr;
    ASSERT_EQ(sqlite3_open((options_.folder / "catalog.db").c_str(), &catalog), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(catalog, statement.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(catalog);
    sqlite3_close(catalog);
    start();
  }
  void damage_job(const std::string& name, const std::string& text) {
    change_catalog(fmt::format("UPDATE jobs SET spec = '{}' WHERE name = '{}'", text, name));
  }
  void damage_cluster(const std::string& text) {
    change_catalog(fmt::format("UPDATE clusters SET spec = '{}' WHERE name = 'c'", text));
  }
  bool is_gone(const std::string& name) {
    try {
      service_->job(named(name));
      return false;
    } catch (const resources::ServiceError&) {
      return true;
    }
  }
};

TEST_F(UnreadableTest, a_waiting_job_waits_on_says_why_and_holds_up_nobody) {
  make_cluster(0);
  for (const char* text : kDamaged) {
    submit("bad", job_of(1, "true"));
    damage_job("bad", text);
    EXPECT_EQ(service_->jobs("w", {}, {}).items.size(), 1U);
    EXPECT_EQ(state_of("bad"), ExecutionState::kQueued);
    ASSERT_EQ(service_->job(named("bad")).execution_info.errors.size(), 1U);
    EXPECT_EQ(service_->job(named("bad")).execution_info.errors[0].code, kUnreadableJob);
    EXPECT_THAT(service_->job(named("bad")).execution_info.errors[0].message, Not(HasSubstr("json.exception")));
    EXPECT_EQ(service_->why(named("bad")).reason, kUnreadableJob);
    submit("good", job_of(1, "true"));
    service_->scale_cluster(kCluster, spec::ManualScale{1});
    EXPECT_EQ(ended("good").execution_state, ExecutionState::kSucceeded);
    EXPECT_EQ(state_of("bad"), ExecutionState::kQueued);
    service_->terminate(named("bad"));
    EXPECT_EQ(state_of("bad"), ExecutionState::kFailed);
    service_->delete_job(named("bad"));
    service_->delete_job(named("good"));
    EXPECT_TRUE(wait_until([&] { return is_gone("bad") && is_gone("good"); }));
    service_->scale_cluster(kCluster, spec::ManualScale{0});
  }
}

TEST_F(UnreadableTest, a_waiting_job_can_be_deleted_at_once) {
  make_cluster(0);
  submit("bad", job_of(1, "true"));
  damage_job("bad", "{");
  service_->delete_job(named("bad"));
  EXPECT_TRUE(wait_until([&] { return is_gone("bad"); }));
}

TEST_F(UnreadableTest, a_job_that_is_whole_again_runs) {
  make_cluster(1);
  submit("first", job_of(1, "true"));
  ended("first");
  service_->scale_cluster(kCluster, spec::ManualScale{0});
  submit("job", job_of(1, "true"));
  damage_job("job", "{");
  service_->scale_cluster(kCluster, spec::ManualScale{1});
  change_catalog("UPDATE jobs SET spec = (SELECT spec FROM jobs WHERE name = 'first') WHERE name = 'job'");
  EXPECT_EQ(ended("job").execution_state, ExecutionState::kSucceeded);
}

TEST_F(UnreadableTest, a_running_job_fails_its_processes_end_and_its_node_is_replaced) {
  make_cluster(1);
  submit("bad", job_of(1, "echo $$ > $AZ_BATCHAI_MOUNT_ROOT/share/pid; exec sleep 600"));
  ASSERT_TRUE(wait_until([&] { return !content_of(share_ / "pid").empty(); }));
  const int pid = std::stoi(content_of(share_ / "pid"));
  damage_job("bad", "{");
  const resources::Job job = ended("bad");
  EXPECT_EQ(job.execution_state, ExecutionState::kFailed);
  ASSERT_FALSE(job.execution_info.errors.empty());
  EXPECT_EQ(job.execution_info.errors[0].code, kUnreadableJob);
  EXPECT_TRUE(wait_until([&] { return ::kill(pid, 0) != 0; }));
  submit("good", job_of(1, "true"));
  EXPECT_EQ(ended("good").execution_state, ExecutionState::kSucceeded);
}

TEST_F(UnreadableTest, a_cluster_is_named_can_be_deleted_and_holds_up_no_other) {
  for (const char* text : kDamaged) {
    make_cluster(1);
    damage_cluster(text);
    const resources::Cluster cluster = service_->cluster(kCluster);
    ASSERT_EQ(cluster.errors.size(), 1U);
    EXPECT_EQ(cluster.errors[0].code, kUnreadableCluster);
    EXPECT_THAT(cluster.errors[0].message, Not(HasSubstr("json.exception")));
    EXPECT_EQ(service_->clusters("w", {}).items.size(), 1U);
    EXPECT_THROW(submit("job", job_of(1, "true")), resources::ServiceError);
    EXPECT_THROW(service_->scale_cluster(kCluster, spec::ManualScale{2}), resources::ServiceError);
    const resources::ClusterName other{"w", "other"};
    service_->create_cluster(other, cluster_of(spec::ManualScale{1}));
    service_->submit(named("good"), {job_of(1, "true"), other, ""});
    EXPECT_EQ(ended("good").execution_state, ExecutionState::kSucceeded);
    service_->delete_job(named("good"));
    EXPECT_TRUE(wait_until([&] { return is_gone("good"); }));
    for (const resources::ClusterName& name : {kCluster, other}) service_->delete_cluster(name);
    EXPECT_TRUE(wait_until([&] { return service_->clusters("w", {}).items.empty(); }));
  }
}

TEST_F(UnreadableTest, a_cluster_whose_scale_is_damaged_is_named_and_can_be_deleted) {
  for (const char* scale : {"null", "{}", "2", "{"}) {
    make_cluster(1);
    change_catalog(fmt::format("UPDATE clusters SET scale = '{}' WHERE name = 'c'", scale));
    const resources::Cluster cluster = service_->cluster(kCluster);
    ASSERT_EQ(cluster.errors.size(), 1U) << scale;
    EXPECT_EQ(cluster.errors[0].code, kUnreadableCluster);
    service_->delete_cluster(kCluster);
    EXPECT_TRUE(wait_until([&] { return service_->clusters("w", {}).items.empty(); }));
  }
}

TEST_F(UnreadableTest, a_state_or_place_that_there_is_none_of_holds_up_nobody) {
  make_cluster(1);
  submit("first", job_of(1, "true"));
  ended("first");
  for (const char* damage :
       {"UPDATE nodes SET state = 'queued'", "UPDATE attempts SET state = 'zz'",
        "UPDATE jobs SET execution_state = 'zz' WHERE name = 'first'",
        "UPDATE jobs SET workspace_id = -9223372036854775808 WHERE name = 'first'",
        "UPDATE jobs SET experiment_id = 99 WHERE name = 'first'", "UPDATE clusters SET allocation_state = ''"}) {
    SCOPED_TRACE(damage);
    change_catalog(fmt::format("PRAGMA foreign_keys = 0; {}", damage));
    submit("next", job_of(1, "true"));
    EXPECT_EQ(ended("next").execution_state, ExecutionState::kSucceeded) << events_of("next");
    for (const resources::Job& job : service_->jobs("w", {}, {}).items)
      EXPECT_EQ(job.execution_state, ExecutionState::kSucceeded);
    service_->delete_job(named("next"));
    EXPECT_TRUE(wait_until([&] { return is_gone("next"); }));
  }
}

TEST_F(UnreadableTest, an_empty_catalog_beside_nodes_is_refused_and_a_new_folder_is_not) {
  make_cluster(1);
  submit("first", job_of(1, "true"));
  ended("first");
  service_.reset();
  for (const char* part : {"-wal", "-shm"}) fs::remove(options_.folder / (std::string("catalog.db") + part));
  fs::resize_file(options_.folder / "catalog.db", 0);
  try {
    start();
    ADD_FAILURE() << "it has started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(error.what(), HasSubstr("catalog.db is empty"));
  }
  end_nodes(options_.folder);
  options_.folder = folder_.path() / "new";
  fs::create_directories(options_.folder);
  std::ofstream(options_.folder / "catalog.db").close();  // Its first server was killed at once.
  EXPECT_NO_THROW(start());
}

TEST_F(UnreadableTest, an_attempt_that_cannot_be_started_fails_with_the_cause) {
  make_cluster(1);
  fs::remove_all(options_.folder / "attempts");
  std::ofstream(options_.folder / "attempts") << "a file where a folder should be";
  submit("job", job_of(1, "true"));
  const resources::Job job = ended("job");
  EXPECT_EQ(job.execution_state, ExecutionState::kFailed);
  ASSERT_EQ(job.execution_info.errors.size(), 1U);
  EXPECT_THAT(job.execution_info.errors[0].message, HasSubstr("attempts"));
  fs::remove(options_.folder / "attempts");
  submit("next", job_of(1, "true"));
  EXPECT_EQ(ended("next").execution_state, ExecutionState::kSucceeded) << events_of("next");
  EXPECT_THAT(events_of("next"), Not(HasSubstr("nodeLost")));
}

}  // namespace
}  // namespace gyre::jobs::service
