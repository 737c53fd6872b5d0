// What the page shows of a cluster over time.
#include "gyre/jobs/service/internal/cluster_use.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace gyre::jobs::service {
namespace {

using catalog::Event;
using catalog::TimeUs;

Event node_event(TimeUs time, std::string from, std::string to) {
  return {.time = time, .subject = "node", .from = std::move(from), .to = std::move(to)};
}

TEST(ClusterUse, is_what_the_events_say) {
  UseHistory history({.running = 1, .idle = 1, .waiting = 0}, 0, 400, 4);
  EXPECT_TRUE(history.take(node_event(350, "idle", "running")));
  EXPECT_TRUE(history.take({.time = 350, .subject = "job", .from = "queued", .to = "running"}));
  EXPECT_TRUE(history.take({.time = 250, .subject = "job", .to = "queued"}));
  EXPECT_TRUE(history.take(node_event(100, "preparing", "idle")));
  EXPECT_TRUE(history.take({.time = 100, .subject = "job", .message = "a remark"}));
  EXPECT_TRUE(history.take(node_event(50, "", "preparing")));
  EXPECT_FALSE(history.take(node_event(-1, "", "idle")));
  const auto use = std::move(history).result(true);
  EXPECT_EQ(use.begin, 0);
  EXPECT_EQ(use.part_us, 100);
  EXPECT_EQ(use.known_from, 0);
  EXPECT_EQ(use.running, (std::vector<double>{0, 0, 0, 0.5}));
  EXPECT_EQ(use.idle, (std::vector<double>{1, 2, 2, 1.5}));
  EXPECT_EQ(use.other, (std::vector<double>{0.5, 0, 0, 0}));
  EXPECT_EQ(use.waiting, (std::vector<double>{0, 0, 0.5, 0.5}));
}

TEST(ClusterUse, says_from_when_it_is_known) {
  UseHistory history({.idle = 1}, 0, 400, 4);
  EXPECT_TRUE(history.take(node_event(150, "", "idle")));
  const auto use = std::move(history).result(false);
  EXPECT_EQ(use.known_from, 150);
  EXPECT_EQ(use.idle, (std::vector<double>{0, 0.5, 1, 1}));
}

// Against a model that goes forwards, second by second.
TEST(ClusterUse, agrees_with_a_model_that_lives_through_it) {
  const auto seed = static_cast<unsigned>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> states = {"", "idle", "running", "preparing", "unusable"};
  constexpr int kSeconds = 600;
  constexpr int kParts = 12;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> nodes(5);
    int waiting = 0;
    std::vector<Event> events;
    std::map<std::string, std::vector<double>> model;
    for (const char* name : {"running", "idle", "other", "waiting"}) model[name].resize(kParts);
    for (int second = -200; second < kSeconds; ++second) {
      if (random() % 10 == 0) {
        std::string& node = nodes[random() % nodes.size()];
        const std::string to = states[random() % states.size()];
        if (to != node) events.push_back(node_event(second, node, to));
        node = to;
      }
      if (random() % 20 == 0) {
        events.push_back({.time = second, .subject = "job", .to = "queued"});
        ++waiting;
      } else if (waiting > 0 && random() % 15 == 0) {
        events.push_back({.time = second, .subject = "job", .from = "queued", .to = "running"});
        --waiting;
      }
      if (second < 0) continue;
      const auto part = static_cast<std::size_t>(second / (kSeconds / kParts));
      for (const std::string& node : nodes) {
        if (node.empty()) continue;
        model[node == "running" || node == "idle" ? node : "other"][part] += 1.0 / (kSeconds / kParts);
      }
      model["waiting"][part] += static_cast<double>(waiting) / (kSeconds / kParts);
    }
    const auto count = [&](auto holds) { return static_cast<int>(std::ranges::count_if(nodes, holds)); };
    const ClusterNow now{
        .running = count([](const std::string& node) { return node == "running"; }),
        .idle = count([](const std::string& node) { return node == "idle"; }),
        .other = count([](const std::string& node) { return node == "preparing" || node == "unusable"; }),
        .waiting = waiting};
    UseHistory history(now, 0, kSeconds, kParts);
    for (auto event = events.rbegin(); event != events.rend() && history.take(*event); ++event) {
    }
    const auto use = std::move(history).result(true);
    for (std::size_t i = 0; i < kParts; ++i) {
      ASSERT_NEAR(use.running[i], model["running"][i], 1e-9) << i;
      ASSERT_NEAR(use.idle[i], model["idle"][i], 1e-9) << i;
      ASSERT_NEAR(use.other[i], model["other"][i], 1e-9) << i;
      ASSERT_NEAR(use.waiting[i], model["waiting"][i], 1e-9) << i;
    }
  }
}

}  // namespace
}  // namespace gyre::jobs::service
