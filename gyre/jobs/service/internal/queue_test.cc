// The scheduler is asked in every turn, and a team's queue may be long: what it costs must depend on what has changed,
// and what the scheduler sees must still be what the catalog has.
#include "gyre/jobs/service/internal/queue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "gyre/base/clock.h"
#include "gyre/base/effort_test_support.h"
#include "gyre/jobs/catalog/catalog.h"
#include "gyre/jobs/drivers/test_support.h"

namespace gyre::jobs::service {
namespace {

using catalog::Id;

constexpr const char* kSpec =
    R"({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/tmp", "customToolkitSettings": {"commandLine": "true"}}})";

class QueueTest : public testing::Test {
 protected:
  QueueTest() : catalog_(catalog::Catalog::open(folder_.path() / "catalog.db")) {
    const Id workspace = catalog_.workspaces().create("w", "").id;
    experiment_ = catalog_.experiments().create(workspace, "e").id;
    cluster_ = catalog_.clusters().create({.workspace = workspace, .name = "c", .spec = "{}", .scale = "{}"}).id;
  }

  Id submit() {
    const std::string name = fmt::format("job-{}", ++submitted_);
    return catalog_.jobs().create({.experiment = experiment_, .cluster = cluster_, .name = name, .spec = kSpec}).id;
  }
  void submit_many(std::uint64_t count) {
    catalog_.together([&] {
      for (std::uint64_t i = 0; i < count; ++i) submit();
    });
  }
  Id node() {
    const catalog::Node made = catalog_.nodes().plan(cluster_, fmt::format("node-{}", ++nodes_), {});
    catalog_.nodes().change(made.id, resources::NodeState::kPreparing, {});
    catalog_.nodes().change(made.id, resources::NodeState::kIdle, {});
    return made.id;
  }
  void refresh() {
    std::set<Id> busy;
    for (const catalog::Attempt& attempt : catalog_.attempts().unended()) busy.insert(attempt.job);
    queue_.refresh(catalog_, busy);
  }
  std::uint64_t rows_of_refresh() {
    const std::uint64_t before = catalog_.rows_read();
    refresh();
    return catalog_.rows_read() - before;
  }
  static std::vector<Id> ids_of(const Queue& queue) {
    std::vector<Id> ids;
    for (const auto& [key, lane] : queue.waiting().lanes()) {
      for (const auto& [place, job] : lane.jobs()) ids.push_back(job.id);
    }
    std::ranges::sort(ids);
    for (const auto& [id, job] : queue.busy()) ids.push_back(-id);
    return ids;
  }
  /// As if the service had been started now.
  std::vector<Id> ids_of_a_new_queue() {
    Queue fresh;
    std::swap(fresh, queue_);
    refresh();
    const std::vector<Id> ids = ids_of(queue_);
    std::swap(fresh, queue_);
    return ids;
  }

  drivers::conformance::PublicFolder folder_;
  catalog::Catalog catalog_;
  Id experiment_ = 0;
  Id cluster_ = 0;
  int submitted_ = 0;
  int nodes_ = 0;
  Queue queue_;
};

TEST_F(QueueTest, a_turn_reads_what_has_changed_however_many_jobs_wait) {
  const std::uint64_t count = is_long_test() ? 100'000 : 1'000;
  submit_many(count);
  auto begin = SteadyClock::now();
  EXPECT_GE(rows_of_refresh(), count);
  const auto all = SteadyClock::now() - begin;
  EXPECT_EQ(queue_.waiting().size(), count);
  EXPECT_LE(rows_of_refresh(), 2U);
  submit();
  catalog_.jobs().terminate(1, {"request", ""});
  begin = SteadyClock::now();
  EXPECT_LE(rows_of_refresh(), 8U);
  const auto changed = SteadyClock::now() - begin;
  EXPECT_EQ(queue_.waiting().size(), count);
  const auto microseconds = [](auto time) { return std::chrono::duration<double, std::micro>(time).count(); };
  std::printf("%llu waiting jobs: all of them read in %.0f us, two that have changed in %.0f us\n",
              static_cast<unsigned long long>(count), microseconds(all), microseconds(changed));
}

// Jobs come, start, end, start again and go, in any order; a queue that has seen all of it agrees with one that reads
// the catalog anew.
TEST_F(QueueTest, after_any_changes_it_holds_what_the_catalog_has) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const std::vector<Id> nodes = {node(), node(), node()};
  for (int i = 0; i < 100; ++i) {
    const auto attempts = catalog_.attempts().unended();
    const auto any = [&](std::size_t count) { return random() % count; };
    const std::vector<catalog::Job> jobs = catalog_.jobs().unfinished();
    switch (any(6)) {
      case 0: submit(); break;
      case 1:
        for (const Id each : nodes) {
          if (jobs.empty() || catalog_.nodes().get(each).state != resources::NodeState::kIdle) continue;
          const catalog::Job& job = jobs[any(jobs.size())];
          const bool free = std::ranges::none_of(catalog_.attempts().unended(),
                                                 [&](const catalog::Attempt& other) { return other.job == job.id; });
          if (free) catalog_.attempts().plan(job.id, job.attempts + 1, {each}, {});
          break;
        }
        break;
      case 2:
        for (const catalog::Attempt& attempt : attempts) catalog_.attempts().confirm_start(attempt.id, {});
        break;
      case 3:
        if (attempts.empty()) break;
        catalog_.attempts().confirm_end(attempts.front().id,
                                        {.outcome = attempts.front().end_intent == resources::EndIntent::kTerminate
                                                        ? catalog::AttemptEnd::Outcome::kSucceeded
                                                        : catalog::AttemptEnd::Outcome::kRequeued});
        for (const catalog::AttemptNode& each : attempts.front().nodes) {
          if (catalog_.nodes().get(each.id).state == resources::NodeState::kPreparing) {
            catalog_.nodes().change(each.id, resources::NodeState::kIdle, {});
          }
        }
        break;
      case 4:
        if (!jobs.empty()) catalog_.jobs().terminate(jobs[any(jobs.size())].id, {"request", ""});
        break;
      default:
        if (jobs.empty()) break;
        catalog_.jobs().start_deletion(jobs[any(jobs.size())].id, {});
        for (const catalog::Job& job : catalog_.jobs().deleting()) {
          if (resources::is_finished(job.execution_state)) catalog_.jobs().remove(job.id);
        }
    }
    if (any(3) > 0) continue;
    refresh();
    ASSERT_EQ(ids_of(queue_), ids_of_a_new_queue()) << "after " << i << " changes";
  }
}

}  // namespace
}  // namespace gyre::jobs::service
