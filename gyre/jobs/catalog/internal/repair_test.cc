#include "gyre/jobs/catalog/internal/repair.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gyre/jobs/catalog/catalog.h"
#include "gyre/jobs/catalog/catalog_test_support.h"
#include "gyre/jobs/catalog/internal/database.h"

namespace gyre::jobs::catalog {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A catalog in which one job has succeeded, one has failed, one runs and one is queued.
class RepairTest : public testing::Test {
 protected:
  RepairTest() {
    Catalog catalog = Catalog::open(folder_.file());
    const Scene scene(catalog, 3);
    run(scene, "good", 0);
    catalog.attempts().confirm_end(attempt_of(catalog, "good"), succeeded());
    run(scene, "bad", 1);
    catalog.attempts().confirm_end(attempt_of(catalog, "bad"), failed(3));
    run(scene, "busy", 2);
    scene.submit("next");
  }

  static void run(const Scene& scene, const std::string& name, std::size_t node) {
    const Job job = scene.submit(name);
    scene.catalog.attempts().plan(job.id, 1, {scene.nodes[node]}, kCause);
    scene.catalog.attempts().confirm_start(attempt_of(scene.catalog, name), kCause);
  }
  static std::string attempt_of(Catalog& catalog, const std::string& job) {
    return catalog.attempts().list(id_of(catalog, job)).back().id;
  }
  static Id id_of(Catalog& catalog, const std::string& job) {
    for (const Job& each : catalog.jobs().list({}, {}).items) {
      if (each.name == job) return each.id;
    }
    throw Error(ErrorCode::kNotFound, job);
  }

  void damage(const std::string& sql) const {
    Database database(folder_.file());
    database.execute("PRAGMA foreign_keys = 0; PRAGMA ignore_check_constraints = 1; " + sql);
  }
  Catalog reopen() {
    sentences_.clear();
    return Catalog::open(folder_.file(),
                         {.now = {}, .repaired = [&](const std::string& each) { sentences_.push_back(each); }});
  }
  static Job job(Catalog& catalog, const std::string& name) { return catalog.jobs().get(id_of(catalog, name)); }

  /// Everything that a service asks.
  static void read_all(Catalog& catalog) {
    for (const Workspace& workspace : catalog.workspaces().list({}).items) {
      for (const Experiment& each : catalog.experiments().list(workspace.id, {}).items) {
        catalog.jobs().list({.experiment = each.id}, {});
      }
      catalog.clusters().list(workspace.id, {});
    }
    for (const Job& each : catalog.jobs().list({}, {}).items) {
      catalog.workspaces().get(each.workspace);
      catalog.experiments().get(each.experiment);
      catalog.clusters().get(each.cluster);
      catalog.attempts().list(each.id);
    }
    for (const Node& node : catalog.nodes().list()) catalog.clusters().get(node.cluster);
    catalog.clusters().list_all({});
    catalog.attempts().unended();
    catalog.unconfirmed();
    catalog.events().list({}, {});
  }

  TemporaryFolder folder_;
  std::vector<std::string> sentences_;
};

TEST_F(RepairTest, a_catalog_that_is_not_damaged_is_not_changed) {
  Id latest = 0;
  {
    Catalog catalog = reopen();
    latest = catalog.events().latest();
  }
  Catalog catalog = reopen();
  EXPECT_THAT(sentences_, IsEmpty());
  EXPECT_EQ(catalog.events().latest(), latest);
}

TEST_F(RepairTest, a_jobs_state_is_that_of_its_attempts_and_its_end) {
  damage("UPDATE jobs SET execution_state = 'zz'");
  Catalog catalog = reopen();
  EXPECT_EQ(job(catalog, "good").execution_state, ExecutionState::kSucceeded);
  EXPECT_EQ(job(catalog, "bad").execution_state, ExecutionState::kFailed);
  EXPECT_EQ(job(catalog, "busy").execution_state, ExecutionState::kRunning);
  EXPECT_EQ(job(catalog, "next").execution_state, ExecutionState::kQueued);
  EXPECT_EQ(sentences_.size(), 4U);
  EXPECT_EQ(sentences_[2], "the execution_state of job 'busy' was damaged ('zz') and is 'running' now");
}

TEST_F(RepairTest, an_attempts_state_is_that_of_its_times) {
  damage("UPDATE attempts SET state = '', end_intent = 'queued'");
  Catalog catalog = reopen();
  EXPECT_EQ(catalog.attempts().list(id_of(catalog, "good")).back().state, AttemptState::kEnded);
  const Attempt attempt = catalog.attempts().list(id_of(catalog, "busy")).back();
  EXPECT_EQ(attempt.state, AttemptState::kStarted);
  EXPECT_EQ(attempt.end_intent, EndIntent::kNone);
  const std::vector<Event> events = catalog.events().list({.job = attempt.job}, {.newest_first = true}).items;
  EXPECT_EQ(events.front().reason, "repaired");
  EXPECT_EQ(events.front().message,
            "the end_intent of attempt 1 of job 'busy' was damaged ('queued') and is 'none' now");
  EXPECT_EQ(events.front().attempt, 1);
}

TEST_F(RepairTest, a_node_is_running_where_it_has_an_attempt_and_otherwise_lost) {
  damage("UPDATE nodes SET state = 'queued'");
  Catalog catalog = reopen();
  std::vector<NodeState> states;
  for (const Node& node : catalog.nodes().list()) states.push_back(node.state);
  EXPECT_THAT(states, ElementsAre(NodeState::kLost, NodeState::kLost, NodeState::kRunning));
}

TEST_F(RepairTest, a_cluster_is_there_and_steady) {
  damage("UPDATE clusters SET provisioning_state = 'x', allocation_state = 'y'");
  Catalog catalog = reopen();
  const Cluster cluster = catalog.clusters().list_all({}).items.front();
  EXPECT_EQ(cluster.provisioning_state, ProvisioningState::kSucceeded);
  EXPECT_EQ(cluster.allocation_state, AllocationState::kSteady);
}

TEST_F(RepairTest, a_job_without_workspace_has_that_of_its_experiment) {
  damage("UPDATE jobs SET workspace_id = -9223372036854775808 WHERE name = 'next'");
  Catalog catalog = reopen();
  EXPECT_EQ(catalog.workspaces().get(job(catalog, "next").workspace).name, "w");
  EXPECT_THAT(sentences_,
              ElementsAre("the workspace_id of job 'next' was damaged (-9223372036854775808) and is 1 now"));
}

TEST_F(RepairTest, jobs_without_experiment_are_recovered_in_their_workspace) {
  damage(
      "UPDATE jobs SET experiment_id = 99, name = 'same' WHERE name = 'next'; "
      "UPDATE jobs SET experiment_id = 77, name = 'same' WHERE name = 'good'");
  Catalog catalog = reopen();
  const Experiment experiment = *catalog.experiments().find(1, "recovered");
  std::vector<std::string> names;
  for (const Job& each : catalog.jobs().list({.experiment = experiment.id}, {}).items) names.push_back(each.name);
  EXPECT_THAT(names, ElementsAre("same", "same-4"));
  EXPECT_THAT(sentences_.back(), HasSubstr("; its name is 'same-4'"));
}

TEST_F(RepairTest, a_job_without_workspace_and_experiment_is_recovered) {
  damage("UPDATE jobs SET experiment_id = 99, workspace_id = 98 WHERE name = 'next'");
  Catalog catalog = reopen();
  const Workspace workspace = *catalog.workspaces().find("recovered");
  const Experiment experiment = *catalog.experiments().find(workspace.id, "recovered");
  EXPECT_EQ(catalog.jobs().list({.experiment = experiment.id}, {}).items.front().name, "next");
}

TEST_F(RepairTest, a_job_without_cluster_has_failed_unless_it_had_succeeded) {
  damage("UPDATE jobs SET cluster_id = 99");
  Catalog catalog = reopen();
  read_all(catalog);
  EXPECT_EQ(job(catalog, "good").execution_state, ExecutionState::kSucceeded);
  for (const char* name : {"busy", "next"}) {
    EXPECT_EQ(job(catalog, name).execution_state, ExecutionState::kFailed);
    EXPECT_THAT(job(catalog, name).error->message, HasSubstr("nobody knows its cluster"));
  }
  EXPECT_THAT(catalog.attempts().unended(), IsEmpty());
}

TEST_F(RepairTest, a_row_whose_own_number_is_damaged_gets_the_one_by_which_others_refer_to_it) {
  for (const char* table : {"workspaces", "experiments", "clusters", "jobs"}) {
    for (const char* number : {"9223372036854775807", "-1"}) {
      SCOPED_TRACE(fmt::format("{} {}", table, number));
      damage(fmt::format("UPDATE {} SET id = {} WHERE id = 1", table, number));
      Catalog catalog = reopen();
      ASSERT_EQ(sentences_.size(), 1U);
      EXPECT_THAT(sentences_[0], HasSubstr(fmt::format("was damaged ({}) and is 1 now", number)));
      EXPECT_EQ(job(catalog, "busy").execution_state, ExecutionState::kRunning);
      read_all(catalog);
    }
  }
}

TEST_F(RepairTest, new_rows_get_numbers_after_one_was_damaged) {
  damage(
      "UPDATE nodes SET id = 9223372036854775807 WHERE id = 1; UPDATE events SET sequence = 9223372036854775807 "
      "WHERE sequence = 2; UPDATE sqlite_sequence SET seq = 9223372036854775807 WHERE name = 'experiments'");
  Catalog catalog = reopen();
  EXPECT_NO_THROW(catalog.experiments().create(1, "new"));
  EXPECT_NO_THROW(catalog.nodes().plan(1, "node-new", kCause));
}

TEST_F(RepairTest, what_has_a_name_that_nobody_can_write_gets_one) {
  damage(
      "UPDATE jobs SET name = '{' WHERE name = 'next'; UPDATE clusters SET name = ''; "
      "UPDATE workspaces SET name = 'a b'; UPDATE experiments SET name = '\xff'");
  Catalog catalog = reopen();
  EXPECT_EQ(sentences_.size(), 4U);
  EXPECT_EQ(job(catalog, "job-4").execution_state, ExecutionState::kQueued);
  const Workspace workspace = *catalog.workspaces().find("workspace-1");
  EXPECT_TRUE(catalog.experiments().find(workspace.id, "experiment-1"));
  EXPECT_TRUE(catalog.clusters().find(workspace.id, "cluster-1"));
  EXPECT_EQ(sentences_.back(), "the name of job 4 was damaged ('{') and is 'job-4' now");
}

TEST_F(RepairTest, a_node_with_a_damaged_name_has_the_one_that_its_attempts_know) {
  damage(
      "UPDATE attempt_nodes SET node_name = 'node-1-7' WHERE node_id = 2; UPDATE nodes SET name = '' WHERE id = 2; "
      "UPDATE nodes SET name = '1.0e+308' WHERE id = 3");
  Catalog catalog = reopen();
  std::vector<std::string> names;
  for (const Node& node : catalog.nodes().list()) names.push_back(node.name);
  EXPECT_THAT(names, testing::IsSupersetOf({"node-1-7", "node-3"}));
}

TEST_F(RepairTest, whatever_is_damaged_everything_can_be_read_and_nothing_is_repaired_twice) {
  struct Column {
    const char* table;
    const char* column;
    bool is_text;
  };
  const std::vector<Column> columns = {{"attempts", "state", true},
                                       {"attempts", "end_intent", true},
                                       {"nodes", "state", true},
                                       {"jobs", "execution_state", true},
                                       {"jobs", "provisioning_state", true},
                                       {"clusters", "allocation_state", true},
                                       {"jobs", "workspace_id", false},
                                       {"jobs", "experiment_id", false},
                                       {"jobs", "cluster_id", false},
                                       {"nodes", "cluster_id", false},
                                       {"experiments", "workspace_id", false},
                                       {"clusters", "workspace_id", false},
                                       {"clusters", "provisioning_state", true}};
  std::mt19937 generator(29);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same cases each time.
  const auto any = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(generator); };
  for (int round = 0; round < 60; ++round) {
    std::string sql;
    for (int i = any(4); i >= 0; --i) {
      const Column& column = columns[static_cast<std::size_t>(any(static_cast<int>(columns.size())))];
      sql += fmt::format("UPDATE {} SET {} = {} WHERE rowid = {}; ", column.table, column.column,
                         column.is_text ? "'queued?'" : std::to_string(900 + any(5)), 1 + any(4));
    }
    SCOPED_TRACE(sql);
    damage(sql);
    {
      Catalog catalog = reopen();
      ASSERT_NO_THROW(read_all(catalog));
    }
    Catalog catalog = reopen();
    EXPECT_THAT(sentences_, IsEmpty());
  }
}

}  // namespace
}  // namespace gyre::jobs::catalog
