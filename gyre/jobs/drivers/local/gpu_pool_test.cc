// No two attempts may have the same GPU, and what they have must outlive the service. Names stand for GPUs.
#include "gyre/jobs/drivers/local/internal/gpu_pool.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/jobs/drivers/test_support.h"

namespace gyre::jobs::drivers::local::internal {
namespace {

using orders::WorkOrder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

FoundGpus four() { return {.names = {"GPU-a", "GPU-b", "GPU-c", "GPU-d"}}; }

/// On a cluster of `of` nodes.
WorkOrder order_of(const std::string& attempt, int nodes, std::optional<int> gpus, int of = 2) {
  WorkOrder order;
  order.attempt = attempt;
  order.job.node_count = nodes;
  order.job.gpus_per_node = gpus;
  order.cluster.scale_settings = spec::ManualScale{of};
  for (int i = 0; i < nodes; ++i) {
    order.nodes.push_back({.id = fmt::format("{}-node-{}", attempt, i), .address = "127.0.0.2"});
  }
  return order;
}

class GpuPoolTest : public testing::Test {
 protected:
  std::filesystem::path file_of(const WorkOrder& order) const { return folder_.path() / order.attempt; }
  WorkOrder given(WorkOrder order) {
    note_ = pool_.give(order, file_of(order));
    return order;
  }
  std::string refusal_of(const WorkOrder& order) const {
    try {
      pool_.check(order.job);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  }

  conformance::PublicFolder folder_;
  GpuPool pool_{four()};
  std::string note_;
};

TEST_F(GpuPoolTest, a_job_that_does_not_ask_has_its_nodes_share) {
  const WorkOrder first = given(order_of("a", 1, std::nullopt));
  EXPECT_THAT(first.nodes[0].devices, Optional(ElementsAre("GPU-a", "GPU-b")));
  EXPECT_EQ(first.nodes[0].gpus, 2);
  EXPECT_EQ(note_, "its GPUs: GPU-a, GPU-b of node a-node-0");
  EXPECT_THAT(given(order_of("b", 1, std::nullopt)).nodes[0].devices, Optional(ElementsAre("GPU-c", "GPU-d")));
}

TEST_F(GpuPoolTest, a_share_is_rounded_down_and_follows_the_largest_size_of_a_cluster) {
  spec::ClusterSpec cluster;
  const auto share = [&](const auto& scale) {
    cluster.scale_settings = scale;
    return pool_.share(cluster);
  };
  EXPECT_EQ(share(spec::ManualScale{1}), 4);
  EXPECT_EQ(share(spec::ManualScale{3}), 1);
  EXPECT_EQ(share(spec::AutoScale{0, 2, 0}), 2);
  EXPECT_EQ(share(spec::ManualScale{8}), 0);
  EXPECT_EQ(share(spec::ManualScale{0}), 4);
}

// It would train on the CPU without a word.
TEST_F(GpuPoolTest, a_job_whose_share_is_nothing_sees_none_and_its_events_say_so) {
  EXPECT_THAT(given(order_of("a", 1, std::nullopt, 8)).nodes[0].devices, Optional(IsEmpty()));
  EXPECT_THAT(note_, HasSubstr("it sees none of the machine's 4 GPUs, of which each of the cluster's 8 nodes has"));
  EXPECT_THAT(given(order_of("b", 1, 0, 8)).nodes[0].devices, Optional(IsEmpty()));
  EXPECT_EQ(note_, "");
}

TEST_F(GpuPoolTest, a_job_may_ask_for_more_than_its_share_and_not_for_more_than_there_are) {
  EXPECT_THAT(given(order_of("a", 1, 3)).nodes[0].devices, Optional(ElementsAre("GPU-a", "GPU-b", "GPU-c")));
  EXPECT_EQ(refusal_of(order_of("b", 2, 2)), "");
  EXPECT_THAT(refusal_of(order_of("b", 2, 3)), HasSubstr("asks for 3 GPUs on each of 2 nodes (gpusPerNode)"));
  EXPECT_THAT(refusal_of(order_of("b", 2, 3)), HasSubstr("has 4 GPUs"));
  EXPECT_THAT(refusal_of(order_of("b", 1, 5)), HasSubstr("asks for 5 GPUs (gpusPerNode)"));
}

TEST_F(GpuPoolTest, nothing_is_masked_on_a_machine_without_gpus) {
  pool_ = GpuPool({.problem = "nvidia-smi has not ended within 10 s"});
  EXPECT_EQ(given(order_of("a", 1, std::nullopt)).nodes[0].devices, std::nullopt);
  EXPECT_EQ(note_, "");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "a"));
  EXPECT_EQ(refusal_of(order_of("b", 1, 0)), "");
  EXPECT_THAT(refusal_of(order_of("b", 1, 1)),
              HasSubstr("has no GPUs that can be counted: nvidia-smi has not ended within 10 s"));
}

// A large job would wait for ever where small ones overtake it.
TEST_F(GpuPoolTest, orders_wait_in_turn_for_gpus_and_those_that_need_none_go_on) {
  given(order_of("runs", 1, 3));
  const auto waits = pool_.waits(
      {order_of("large", 1, 2), order_of("small", 1, 1), order_of("none", 1, 0), order_of("too-large", 1, 9)});
  EXPECT_EQ(waits[0], "needs 2 GPUs; 1 of the machine's 4 is free");
  EXPECT_THAT(waits[1], HasSubstr("needs 1 GPU; 1 of the machine's 4 is free; another job is ahead of it"));
  EXPECT_EQ(waits[2], "");
  EXPECT_EQ(waits[3], "");
  EXPECT_THROW(given(order_of("large", 1, 2)), Error);
  pool_.take_back("runs");
  EXPECT_THAT(pool_.waits({order_of("large", 1, 2), order_of("small", 1, 1), order_of("third", 1, 2)}),
              ElementsAre("", "", HasSubstr("needs 2 GPUs; 1 of")));
}

TEST_F(GpuPoolTest, what_attempts_have_outlives_the_service) {
  given(order_of("a", 1, 1));
  const WorkOrder before = given(order_of("b", 2, 1));
  given(order_of("none", 1, 0));
  pool_.take_back("a");
  pool_ = GpuPool(four());
  WorkOrder after = order_of("b", 2, 1);
  pool_.take_up(after, file_of(after));
  EXPECT_EQ(after, before);
  WorkOrder none = order_of("none", 1, 0);
  pool_.take_up(none, file_of(none));
  EXPECT_THAT(none.nodes[0].devices, Optional(IsEmpty()));
  EXPECT_THAT(given(order_of("c", 1, 2)).nodes[0].devices, Optional(ElementsAre("GPU-a", "GPU-d")));
}

// One that an earlier version has started sees all GPUs, whatever we say.
TEST_F(GpuPoolTest, an_attempt_without_a_file_holds_all_gpus) {
  WorkOrder old = order_of("old", 1, std::nullopt);
  pool_.take_up(old, file_of(old));
  EXPECT_EQ(old.nodes[0].devices, std::nullopt);
  EXPECT_THAT(pool_.waits({order_of("a", 1, 1)}), ElementsAre(HasSubstr("may use all of them")));
  EXPECT_THAT(pool_.waits({order_of("a", 1, 0)}), ElementsAre(""));
  pool_.take_back("old");
  EXPECT_THAT(pool_.waits({order_of("a", 1, 1)}), ElementsAre(""));
}

TEST_F(GpuPoolTest, no_two_attempts_ever_have_the_same_gpu) {
  constexpr std::uint64_t kSeed = 124;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  Random random(kSeed);
  std::map<std::string, WorkOrder> live;
  for (int step = 0; step < 300; ++step) {
    const auto choice = random.below(4);
    if (choice == 0 && !live.empty()) {
      pool_.take_back(live.begin()->first);
      live.erase(live.begin());
    } else if (choice == 1) {
      pool_ = GpuPool(four());
      for (auto& [name, order] : live) pool_.take_up(order, file_of(order));
    } else {
      WorkOrder order =
          order_of(fmt::format("a{}", step), 1 + static_cast<int>(random.below(2)), static_cast<int>(random.below(3)));
      if (pool_.waits({order})[0].empty()) live.emplace(order.attempt, given(order));
    }
    std::vector<std::string> all;
    for (const auto& [name, order] : live) {
      for (const auto& node : order.nodes) {
        EXPECT_EQ(node.gpus, order.job.gpus_per_node);
        std::ranges::copy(node.devices.value(), std::back_inserter(all));
      }
    }
    std::ranges::sort(all);
    ASSERT_EQ(std::ranges::adjacent_find(all), all.end()) << "after step " << step;
  }
}

}  // namespace
}  // namespace gyre::jobs::drivers::local::internal
