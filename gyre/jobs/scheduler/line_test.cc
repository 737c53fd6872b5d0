// A service keeps its line of waiting jobs for months, one change at a time; it must stay what a new one would be, and
// a long queue must not slow decisions down.
#include "gyre/jobs/scheduler/line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/random.h"
#include "gyre/jobs/scheduler/internal/pass.h"
#include "gyre/jobs/scheduler/state_test_support.h"

namespace gyre::jobs::scheduler {
namespace {

std::vector<JobId> ids_of(const Line& line) {
  std::vector<JobId> ids;
  for (const auto& [key, lane] : line.lanes()) {
    for (const auto& [place, job] : lane.jobs()) ids.push_back(job.id);
  }
  return ids;
}

TEST(LineTest, jobs_stand_by_priority_and_then_by_sequence) {
  World world(1);
  const JobId low = world.submit(1, std::chrono::hours(1), Priority::kLow);
  const JobId first = world.submit(1);
  const JobId second = world.submit(1);
  const JobId high = world.submit(1, std::chrono::hours(1), Priority::kHigh);
  EXPECT_THAT(ids_of(Line(world.state.waiting)), testing::ElementsAre(high, first, second, low));
}

TEST(LineTest, a_line_that_was_changed_step_by_step_is_that_of_its_jobs) {
  const auto seed = static_cast<std::uint64_t>(wall_clock_us());
  SCOPED_TRACE(seed);
  Random random(seed);
  const auto below = [&](int bound) { return static_cast<int>(random.below(static_cast<std::uint64_t>(bound))); };
  Line line;
  std::map<JobId, Job> jobs;
  for (int step = 0; step < 5'000; ++step) {
    const JobId id = below(200);
    if (below(3) == 0) {
      line.remove(id);
      jobs.erase(id);
    } else {
      const Job job{.id = id,
                    .workspace = below(2) == 0 ? "v" : "w",
                    .cluster = below(3),
                    .priority = static_cast<Priority>(below(3)),
                    .sequence = id,
                    .node_count = 1 + below(4)};
      line.put(job);
      jobs[id] = job;
    }
  }
  std::vector<Job> left;
  for (const auto& [id, job] : jobs) left.push_back(job);
  const Line made_anew(left);
  EXPECT_EQ(line.size(), left.size());
  EXPECT_EQ(ids_of(line), ids_of(made_anew));
  for (const auto& [key, lane] : line.lanes()) EXPECT_EQ(lane.smallest(), made_anew.lanes().at(key).smallest());
  for (JobId id = 0; id < 200; ++id) ASSERT_EQ(line.find(id) != nullptr, jobs.contains(id)) << id;
}

// What a decision costs is the jobs it looks at: it took 4 ms where 50,000 could never start.
TEST(LineTest, a_decision_looks_at_one_job_of_100000_that_cannot_start) {
  for (const int least : {1, 17}) {  // On 16 nodes, all busy.
    World world(16);
    for (int i = 0; i < 8; ++i) world.submit(2);
    world.step();
    for (int i = 0; i < 100'000; ++i) world.submit(least + i % 4);
    const Line line(world.state.waiting);
    world.state.waiting.clear();
    const Pass pass(world.state, line, Extent::kDecisions);
    EXPECT_THAT(pass.decisions(), testing::IsEmpty());
    EXPECT_THAT(pass.blocked(), testing::SizeIs(1)) << least;
  }
}

}  // namespace
}  // namespace gyre::jobs::scheduler
