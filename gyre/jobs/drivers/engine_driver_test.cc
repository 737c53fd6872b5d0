// Whatever an engine loses, delays or does twice, jobs on its nodes must behave as on any others: the suite of all
// drivers, against a model of an engine.
#include "gyre/jobs/drivers/engine_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/drivers/driver_conformance.h"
#include "gyre/jobs/drivers/internal/service_place.h"
#include "gyre/jobs/drivers/model_engine_test_support.h"
#include "gyre/jobs/node/node_folders.h"

namespace gyre::jobs::drivers {
namespace {

namespace fs = std::filesystem;

class ModelFixture final : public conformance::EngineFixture<EngineOptions> {
 public:
  explicit ModelFixture(const fs::path& folder) : EngineFixture(folder, {}) {
    const auto seed = static_cast<std::uint64_t>(wall_clock_us());
    std::cout << "the model's seed is " << seed << "\n";
    options_.node_folder = folder / "local";
    options_.gyre = GYRE_PROGRAM;
    options_.lease = std::chrono::milliseconds(2'000);
    options_.margin = std::chrono::milliseconds(1'000);
    options_.poll = std::chrono::milliseconds(20);
    options_.outage_pause = std::chrono::milliseconds(20);
    engine_ = std::make_shared<ModelEngine>(folder, options_, seed);
    start();
  }
  ~ModelFixture() override {
    end();
    EXPECT_TRUE(conformance::wait_until([&] { return all_ended(); }));
    EXPECT_THAT(roots(), testing::IsEmpty());
  }
  ModelFixture(const ModelFixture&) = delete;
  ModelFixture& operator=(const ModelFixture&) = delete;

  ModelEngine& engine() { return *engine_; }

 private:
  std::unique_ptr<Driver> make_driver() const override {
    return std::make_unique<EngineDriver>("model", options_, engine_);
  }
  std::vector<fs::path> roots() const override {
    std::vector<fs::path> found;
    for (int host = 0; host < ModelEngine::kHosts; ++host) add_folders(engine_->own_folder(host), found);
    return found;
  }
  bool all_ended() {
    try {
      const std::vector<Holding> left = engine_->list();
      for (const Holding& holding : left) {
        if (!holding.is_over()) engine_->release(holding.id);
      }
      return std::ranges::all_of(left, &Holding::is_over);
    } catch (const Error&) {
      return false;  // It loses this, too.
    }
  }

  std::shared_ptr<ModelEngine> engine_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Model, DriverConformance, ModelFixture);

using EngineJobs = DriverConformance<ModelFixture>;

// A host that has failed must cost the job its attempt, not its life.
TEST_F(EngineJobs, an_attempt_whose_nodes_the_engine_takes_away_is_lost_with_them) {
  const WorkOrder order = this->order("taken", 2, line("touch $AZ_BATCHAI_MOUNT_ROOT/share/runs; sleep 1000"));
  driver().submit(order);
  EXPECT_TRUE(wait_until([&] { return exists("runs"); }));
  fixture_->engine().take_away("gyre-" + order.attempt);
  const auto result = wait_for_end(order.attempt);
  ASSERT_TRUE(result.error);
  EXPECT_THAT(result.error->message, testing::HasSubstr("the model's job"));
  EXPECT_THAT(result.error->message, testing::HasSubstr("NODE_FAIL"));
  EXPECT_THAT(result.lost, testing::ElementsAre("node-0", "node-1"));
  driver().acknowledge(order.attempt);
  expect_nothing_left(order);
}

// A job owns its temporary folder, so that in the node's own it could replace what the node program, root's, uses. Both
// lie in /tmp unless the options of the cluster say otherwise.
TEST(EngineDriver, a_node_s_own_folder_is_not_the_temporary_folder_of_its_job) {
  EXPECT_EQ(node_root({}, "a-1").parent_path(), node::temporary_folder("a-1").parent_path());
  EXPECT_NE(node_root({}, "a-1"), node::temporary_folder("a-1"));
}

// What the engine will never give must not be waited for.
TEST_F(EngineJobs, a_refusal_ends_the_attempt_with_the_engines_words) {
  const auto result = run(this->order("too-large", 4, line("true")));
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->message, "the model refuses the job: there are three hosts");
  EXPECT_THAT(result.lost, testing::IsEmpty());
}

// The user who makes a cluster on a host that cannot use the engine must learn it there, and what to do.
TEST_F(EngineJobs, what_is_missing_is_said_with_its_remedy) {
  EXPECT_NO_THROW(driver().check({}));
  EXPECT_EQ(driver().most_nodes(), ModelEngine::kHosts);
  fixture_->engine().missing = {{"there is no modeller", "hire one"}, {"there is no clay", "dig some"}};
  try {
    driver().check({});
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_EQ(std::string(error.what()), "there is no modeller (hire one); there is no clay (dig some)");
  }
}

}  // namespace
}  // namespace gyre::jobs::drivers
