// Workers and servers as threads: what training gets out of them has to be what one process would compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <latch>

#include "gyre/params/servers_test_support.h"

namespace gyre::params {
namespace {

TEST(ParameterServers, sync_is_one_process_bit_for_bit_whatever_the_servers) {
  for (const UpdateOptions& update :
       {UpdateOptions{.rate = 0.1}, UpdateOptions{.rate = 0.1, .momentum = 0.9, .weight_decay = 0.01},
        UpdateOptions{.rule = Rule::kAdam, .rate = 0.1}}) {
    for (const int workers : {1, 3}) {
      const Tensors alone = train_alone(workers, update, 4);
      for (const int servers : {1, 2, 3}) {
        EXPECT_EQ(train_with_servers({.workers = workers, .servers = servers}, update, 4), alone)
            << workers << " workers, " << servers << " servers, rule " << rule_name(update.rule);
      }
    }
  }
}

TEST(ParameterServers, average_answers_with_the_mean_gradient) {
  const Layout layout{.workers = 3, .servers = 2};
  for (const InMemory& in_memory : {InMemory(never), InMemory(always), InMemory(in_turns)}) {
    for (const auto& host_ids : {std::vector<std::string>{}, {"a", "b", "a", "b", "c"}}) {
      run(
          layout, setup_of(2, {.rule = Rule::kAverage}),
          [&](Client& client) {
            for (int step = 0; step < 4; ++step) {
              Tensors gradients = zeros();
              for (auto& tensor : gradients) tensor.assign(tensor.size(), static_cast<float>(client.worker() + step));
              take_step(client, in_memory(client.worker(), step), gradients, gradients);
              for (const auto& tensor : gradients) {
                ASSERT_EQ(tensor, std::vector<float>(tensor.size(), static_cast<float>(1 + step)));
              }
            }
          },
          host_ids);
    }
  }
}

TEST(ParameterServers, async_with_one_worker_is_serial_training_without_staleness) {
  const Layout layout{.workers = 1, .servers = 2};
  Tensors parameters = first_parameters();
  const auto statistics =
      run(layout, setup_of(2, {.rate = 0.1, .momentum = 0.9}, {.kind = Consistency::kAsync}), [&](Client& client) {
        client.initialise(spans(parameters));
        for (int step = 0; step < 5; ++step) {
          const Tensors gradients = gradients_of(parameters, 0, step);
          client.step(views(gradients), spans(parameters));
        }
      });
  EXPECT_EQ(parameters, train_alone(1, {.rate = 0.1, .momentum = 0.9}, 5));
  for (const ServerStatistics& server : statistics) {
    ASSERT_EQ(server.staleness.size(), 1U);
    EXPECT_EQ(server.staleness.begin()->first, 0U);
  }
}

class Unsynchronised : public testing::TestWithParam<ConsistencyOptions> {};

TEST_P(Unsynchronised, every_gradient_is_applied_exactly_once) {
  // Gradients of -1 at rate 1 count themselves, whatever their order.
  const Layout layout{.workers = 4, .servers = 2};
  std::atomic<int> total = 0;
  Tensors end;
  std::atomic<int> left = 0;
  const auto statistics = run(layout, setup_of(2, {}, GetParam()), [&](Client& client) {
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    Tensors gradients = zeros();
    for (auto& tensor : gradients) tensor.assign(tensor.size(), -1.0F);
    const int steps = 10 + 5 * client.worker();
    for (int step = 0; step < steps; ++step) {
      const float before = parameters[0][0];
      take_step(client, in_turns(client.worker(), step), gradients, parameters);
      EXPECT_GE(parameters[0][0], before + 1) << "a worker does not see its own update";
    }
    total += steps;
    if (++left < layout.workers) return;
    client.pull(spans(parameters));
    end = parameters;
  });
  for (const auto& tensor : end) EXPECT_EQ(tensor, std::vector<float>(tensor.size(), static_cast<float>(total)));
  std::uint64_t recorded = 0;
  for (const ServerStatistics& server : statistics) {
    for (const auto& [staleness, count] : server.staleness) recorded += count;
  }
  const auto blocks = divide_into_blocks(kSizes, setup_of(2, {}).shards).size();
  EXPECT_EQ(recorded, static_cast<std::uint64_t>(total) * blocks);
}

INSTANTIATE_TEST_SUITE_P(All, Unsynchronised,
                         testing::Values(ConsistencyOptions{.kind = Consistency::kAsync},
                                         ConsistencyOptions{.kind = Consistency::kBounded, .staleness = 0},
                                         ConsistencyOptions{.kind = Consistency::kBounded, .staleness = 2}));

TEST(ParameterServers, a_worker_that_has_run_out_of_data_is_waited_for_by_nobody) {
  const Layout layout{.workers = 3, .servers = 2};
  run(layout, setup_of(2, {.rate = -1}), [&](Client& client) {
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    Tensors gradients = zeros();
    for (auto& tensor : gradients) tensor.assign(tensor.size(), static_cast<float>(client.worker()));
    for (int step = 0; step < 2 + client.worker(); ++step) {
      take_step(client, in_turns(client.worker(), step), gradients, parameters);
    }
    // Two steps with the mean of 0, 1 and 2, one with that of 1 and 2, one with 2 alone.
    constexpr std::array kExpected = {2.0F, 3.5F, 5.5F};
    EXPECT_EQ(parameters[1][100], kExpected.at(static_cast<std::size_t>(client.worker())));
  });
}

TEST(ParameterServers, worker_0s_bytes_become_everybodys) {
  run({.workers = 3, .servers = 1}, setup_of(1, {.rule = Rule::kAverage}), [&](Client& client) {
    std::vector<double> values(5000, client.worker() + 0.5);
    client.broadcast(std::as_writable_bytes(std::span(values)));
    EXPECT_EQ(values, std::vector<double>(5000, 0.5));
  });
}

TEST(ParameterServers, metrics_are_summed_over_the_workers) {
  const Layout layout{.workers = 3, .servers = 2};
  run(layout, setup_of(2, {}, {.kind = Consistency::kAsync}), [&](Client& client) {
    std::vector<double> values = {1.0, static_cast<double>(client.worker())};
    client.sum(values);
    EXPECT_EQ(values, (std::vector<double>{3, 3}));
    if (client.worker() == 2) return;
    client.sum(values);
    EXPECT_EQ(values, (std::vector<double>{6, 6})) << "worker 2 has left";
  });
}

TEST(ParameterServers, with_a_backup_worker_the_late_one_is_told_and_catches_up) {
  const Layout layout{.workers = 3, .servers = 2};
  // Worker 2 must have the first parameters: with later ones its gradient would not be late.
  std::latch all_have_parameters(3);
  std::latch others_are_through(2);
  Tensors after_three_steps;
  run(layout, setup_of(2, {.rate = -1}, {.backup_workers = 1}), [&](Client& client) {
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    all_have_parameters.arrive_and_wait();
    Tensors gradients = zeros();
    gradients[1][100] = static_cast<float>(client.worker() + 1);
    if (client.worker() == 2) {
      others_are_through.wait();
      EXPECT_FALSE(take_step(client, true, gradients, parameters).accepted);
      EXPECT_EQ(parameters, after_three_steps);
      return;
    }
    for (int step = 0; step < 3; ++step) {
      const Client::Outcome outcome = take_step(client, in_turns(client.worker(), step), gradients, parameters);
      EXPECT_TRUE(outcome.accepted);
      EXPECT_THAT(outcome.contributors, testing::ElementsAre(0, 1));
    }
    EXPECT_EQ(parameters[1][100], 4.5F) << "three times the mean of 1 and 2";
    if (client.worker() == 0) after_three_steps = parameters;
    others_are_through.count_down();
    others_are_through.wait();
    if (client.worker() == 0) return;
    client.step(views(gradients), spans(parameters));  // Worker 0 has left, and worker 2 does so.
  });
}

TEST(ParameterServers, a_worker_that_never_trains_holds_up_nobody) {
  const Layout layout{.workers = 2, .servers = 2};
  group::run_in_process(layout.size(), [&](group::Group& group) {
    if (layout.is_server(group.rank())) return static_cast<void>(serve(group, layout));
    if (layout.worker_of(group.rank()) == 1) return Connection(group, layout).leave_without_training();
    Client client(group, layout, setup_of(2, {.rate = -1}));
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    Tensors gradients = zeros();
    gradients[0][0] = 1;
    client.step(views(gradients), spans(parameters));
    EXPECT_EQ(parameters[0][0], 1);
  });
}

}  // namespace
}  // namespace gyre::params
