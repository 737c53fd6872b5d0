// Workers and servers as threads: what training gets out of them has to be what one process would compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <latch>
#include <numeric>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/collectives/kernels.h"
#include "gyre/group/in_process.h"
#include "gyre/params/client.h"
#include "gyre/params/server.h"

namespace gyre::params {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<std::vector<float>>;

const std::vector<std::uint64_t> kSizes = {5, 300, 1, 64, 7};

Tensors zeros() {
  Tensors tensors;
  for (const std::uint64_t size : kSizes) tensors.emplace_back(size);
  return tensors;
}

Tensors first_parameters() {
  Tensors tensors = zeros();
  Random random(7);
  for (auto& tensor : tensors) {
    for (float& value : tensor) value = random.uniform(-1, 1);
  }
  return tensors;
}

/// What a worker computes from the parameters in a step: anything that depends on all three.
Tensors gradients_of(const Tensors& parameters, int worker, int step) {
  Tensors gradients = parameters;
  Random random(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(worker));
  for (auto& tensor : gradients) {
    for (float& value : tensor) value = 0.5F * value + random.uniform(-1, 1);
  }
  return gradients;
}

std::vector<std::span<float>> spans(Tensors& tensors) { return {tensors.begin(), tensors.end()}; }
std::vector<std::span<const float>> views(const Tensors& tensors) { return {tensors.begin(), tensors.end()}; }

TrainingSetup setup_of(int servers, const UpdateOptions& update, const ConsistencyOptions& consistency = {}) {
  return {.tensor_values = kSizes,
          .shards = {.servers = servers, .values_per_block = 40},
          .update = update,
          .consistency = consistency};
}

/// Runs `work` on each worker, together with the servers.
std::vector<ServerStatistics> run(const Layout& layout, const TrainingSetup& setup,
                                  const std::function<void(Client&)>& work) {
  std::vector<ServerStatistics> statistics(static_cast<std::size_t>(layout.servers));
  group::run_in_process(layout.size(), [&](group::Group& group) {
    if (layout.is_server(group.rank())) {
      statistics[static_cast<std::size_t>(group.rank())] = serve(group, layout);
      return;
    }
    Client client(group, layout, setup);
    work(client);
  });
  return statistics;
}

/// The same training in one process: allreduce's sum, in the order of the workers, and the rule.
Tensors train_alone(int workers, const UpdateOptions& update, int steps) {
  Tensors parameters = first_parameters();
  const UpdateRule rule(update);
  std::vector<Tensors> slots(rule.slots(), zeros());
  for (int step = 0; step < steps; ++step) {
    std::vector<Tensors> gradients;
    for (int worker = 0; worker < workers; ++worker) gradients.push_back(gradients_of(parameters, worker, step));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      std::vector<float> mean(parameters[i].size());
      std::vector<const std::byte*> sources;
      for (const Tensors& one : gradients) sources.push_back(reinterpret_cast<const std::byte*>(one[i].data()));
      collectives::reduce(reinterpret_cast<std::byte*>(mean.data()), sources, mean.size(),
                          collectives::DataType::kFloat32, collectives::ReduceOperation::kSum, 1.0 / workers);
      std::vector<std::span<float>> state;
      for (Tensors& slot : slots) state.emplace_back(slot[i]);
      rule.apply(parameters[i], mean, state, static_cast<std::uint64_t>(step) + 1, 0.1);
    }
  }
  return parameters;
}

Tensors train_with_servers(const Layout& layout, const UpdateOptions& update, int steps) {
  std::vector<Tensors> results(static_cast<std::size_t>(layout.workers));
  run(layout, setup_of(layout.servers, update), [&](Client& client) {
    Tensors parameters = client.worker() == 0 ? first_parameters() : zeros();
    client.initialise(spans(parameters));
    for (int step = 0; step < steps; ++step) {
      const Tensors gradients = gradients_of(parameters, client.worker(), step);
      client.step(views(gradients), spans(parameters), 0.1);
    }
    results[static_cast<std::size_t>(client.worker())] = parameters;
  });
  for (const Tensors& result : results) EXPECT_EQ(result, results.front()) << "the workers' parameters differ";
  return results.front();
}

TEST(ParameterServers, sync_is_one_process_bit_for_bit_whatever_the_servers) {
  for (const UpdateOptions& update :
       {UpdateOptions{}, UpdateOptions{.momentum = 0.9, .weight_decay = 0.01}, UpdateOptions{.rule = Rule::kAdam}}) {
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
  run(layout, setup_of(2, {.rule = Rule::kAverage}), [&](Client& client) {
    Tensors gradients = zeros();
    for (auto& tensor : gradients) tensor.assign(tensor.size(), static_cast<float>(client.worker()));
    client.step(views(gradients), spans(gradients), 0);  // In place.
    for (const auto& tensor : gradients) EXPECT_EQ(tensor, std::vector<float>(tensor.size(), 1.0F));
  });
}

TEST(ParameterServers, averaging_parameters_in_each_step_is_averaging_gradients_where_the_rule_is_linear) {
  // x = x0 - rate * mean(g) either way. The mean of the workers' velocities is the velocity of their mean gradient, so
  // momentum changes nothing; the root in Adam does.
  const Layout layout{.workers = 2, .servers = 1};
  const auto averaged = [&](const UpdateOptions& update) {
    Tensors result;
    run(layout, setup_of(1, {.rule = Rule::kReplace}), [&](Client& client) {
      Tensors parameters = first_parameters();
      client.initialise(spans(parameters));
      const UpdateRule local(update);
      std::vector<Tensors> slots(local.slots(), zeros());
      for (int step = 0; step < 3; ++step) {
        const Tensors gradients = gradients_of(parameters, client.worker(), step);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          std::vector<std::span<float>> state;
          for (Tensors& slot : slots) state.emplace_back(slot[i]);
          local.apply(parameters[i], gradients[i], state, static_cast<std::uint64_t>(step) + 1, 0.1);
        }
        client.step(views(parameters), spans(parameters), 0);
      }
      if (client.worker() == 0) result = parameters;
    });
    return result;
  };
  const auto largest_difference = [](const Tensors& a, const Tensors& b) {
    float largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t k = 0; k < a[i].size(); ++k) largest = std::max(largest, std::abs(a[i][k] - b[i][k]));
    }
    return largest;
  };
  const UpdateOptions momentum{.momentum = 0.9};
  const UpdateOptions adam{.rule = Rule::kAdam};
  EXPECT_LT(largest_difference(averaged({}), train_alone(2, {}, 3)), 1e-6F);
  EXPECT_LT(largest_difference(averaged(momentum), train_alone(2, momentum, 3)), 1e-6F);
  EXPECT_GT(largest_difference(averaged(adam), train_alone(2, adam, 3)), 1e-2F);
}

TEST(ParameterServers, async_with_one_worker_is_serial_training_without_staleness) {
  const Layout layout{.workers = 1, .servers = 2};
  Tensors parameters = first_parameters();
  const auto statistics =
      run(layout, setup_of(2, {.momentum = 0.9}, {.kind = Consistency::kAsync}), [&](Client& client) {
        client.initialise(spans(parameters));
        for (int step = 0; step < 5; ++step) {
          const Tensors gradients = gradients_of(parameters, 0, step);
          client.step(views(gradients), spans(parameters), 0.1);
        }
      });
  EXPECT_EQ(parameters, train_alone(1, {.momentum = 0.9}, 5));
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
      client.step(views(gradients), spans(parameters), 1);
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
  run(layout, setup_of(2, {}), [&](Client& client) {
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    Tensors gradients = zeros();
    for (auto& tensor : gradients) tensor.assign(tensor.size(), static_cast<float>(client.worker()));
    for (int step = 0; step < 2 + client.worker(); ++step) client.step(views(gradients), spans(parameters), -1);
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
  std::latch others_are_through(2);
  Tensors after_three_steps;
  run(layout, setup_of(2, {}, {.backup_workers = 1}), [&](Client& client) {
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    Tensors gradients = zeros();
    gradients[1][100] = static_cast<float>(client.worker() + 1);
    if (client.worker() == 2) {
      others_are_through.wait();
      EXPECT_FALSE(client.step(views(gradients), spans(parameters), -1).accepted);
      EXPECT_EQ(parameters, after_three_steps);
      return;
    }
    for (int step = 0; step < 3; ++step) {
      const Client::Outcome outcome = client.step(views(gradients), spans(parameters), -1);
      EXPECT_TRUE(outcome.accepted);
      EXPECT_THAT(outcome.contributors, testing::ElementsAre(0, 1));
    }
    EXPECT_EQ(parameters[1][100], 4.5F) << "three times the mean of 1 and 2";
    if (client.worker() == 0) after_three_steps = parameters;
    others_are_through.count_down();
    others_are_through.wait();
    if (client.worker() == 0) return;
    client.step(views(gradients), spans(parameters), -1);  // Worker 0 has left, and worker 2 does so.
  });
}

class Survivors : public testing::TestWithParam<ConsistencyOptions> {};

TEST_P(Survivors, go_on_when_a_worker_dies_between_any_two_messages) {
  const Layout layout{.workers = 3, .servers = 2};
  for (const int died_at : {0, 1, 2}) {
    std::atomic<int> finished = 0;
    run(layout, setup_of(2, {}, GetParam()), [&](Client& client) {
      Tensors parameters = first_parameters();
      client.initialise(spans(parameters));
      for (int step = 0; step < 4; ++step) {
        if (client.worker() == died_at && step == 2) throw Error(ErrorCode::kIo, "the disk is full");
        const Tensors gradients = gradients_of(parameters, client.worker(), step);
        client.step(views(gradients), spans(parameters), 0.1);
      }
      std::vector<double> sum = {1};
      client.sum(sum);
      EXPECT_EQ(sum[0], 2);
      std::vector<double> values(10, client.worker());
      client.broadcast(std::as_writable_bytes(std::span(values)));
      EXPECT_EQ(values[0], died_at == 0 ? client.worker() : 0);
      ++finished;
    });
    EXPECT_EQ(finished, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(ParameterServers, Survivors,
                         testing::Values(ConsistencyOptions{.survives_losses = true},
                                         ConsistencyOptions{.backup_workers = 1, .survives_losses = true},
                                         ConsistencyOptions{.kind = Consistency::kAsync, .survives_losses = true},
                                         ConsistencyOptions{
                                             .kind = Consistency::kBounded, .staleness = 1, .survives_losses = true}));

TEST(ParameterServers, in_sync_the_survivors_average_over_themselves) {
  const Layout layout{.workers = 3, .servers = 2};
  run(layout, setup_of(2, {}, {.survives_losses = true}), [&](Client& client) {
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    Tensors gradients = zeros();
    gradients[1][100] = static_cast<float>(client.worker());
    client.step(views(gradients), spans(parameters), -1);
    EXPECT_EQ(parameters[1][100], 1) << "the mean of 0, 1 and 2";
    if (client.worker() == 2) throw Error(ErrorCode::kIo, "the disk is full");
    const Client::Outcome outcome = client.step(views(gradients), spans(parameters), -1);
    EXPECT_EQ(parameters[1][100], 1.5F) << "and that of 0 and 1";
    EXPECT_THAT(outcome.contributors, testing::ElementsAre(0, 1));
  });
}

TEST(ParameterServers, a_worker_that_never_trains_holds_up_nobody) {
  const Layout layout{.workers = 2, .servers = 2};
  group::run_in_process(layout.size(), [&](group::Group& group) {
    if (layout.is_server(group.rank())) return static_cast<void>(serve(group, layout));
    if (layout.worker_of(group.rank()) == 1) return leave_without_training(group, layout);
    Client client(group, layout, setup_of(2, {}));
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    Tensors gradients = zeros();
    gradients[0][0] = 1;
    client.step(views(gradients), spans(parameters), -1);
    EXPECT_EQ(parameters[0][0], 1);
  });
}

std::string failure_of(const Layout& layout, const std::function<void(group::Group&)>& worker) {
  try {
    group::run_in_process(layout.size(), [&](group::Group& group) {
      if (layout.is_server(group.rank())) {
        serve(group, layout);
      } else {
        worker(group);
      }
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ParameterServers, workers_that_disagree_fail_with_one_message) {
  const Layout layout{.workers = 2, .servers = 2};
  const std::string setups = failure_of(layout, [&](group::Group& group) {
    Client client(group, layout, setup_of(2, {.momentum = 0.1 * group.rank()}));
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
  });
  EXPECT_THAT(setups, HasSubstr("has other parameters, another optimizer or another consistency"));
  const std::string rates = failure_of(layout, [&](group::Group& group) {
    Client client(group, layout, setup_of(2, {}));
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    client.step(views(parameters), spans(parameters), 0.1 * (1 + group.rank()));
  });
  EXPECT_THAT(rates, HasSubstr("in sync all workers have to use the same one"));
  const std::string servers = failure_of(layout, [&](group::Group& group) { Client(group, layout, setup_of(1, {})); });
  EXPECT_THAT(servers, HasSubstr("among 1 servers; the job has 2"));
}

TEST(ParameterServers, a_worker_that_fails_ends_the_servers_and_the_others_with_its_reason) {
  const Layout layout{.workers = 2, .servers = 1};
  const std::string failure = failure_of(layout, [&](group::Group& group) {
    Client client(group, layout, setup_of(1, {}));
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    if (group.rank() == 1) throw Error(ErrorCode::kIo, "the disk of worker 1 is full");
    client.step(views(parameters), spans(parameters), 0.1);
  });
  EXPECT_THAT(failure, HasSubstr("the disk of worker 1 is full"));
}

TEST(ParameterServers, end_with_one_message_when_all_workers_have_died_or_the_one_with_the_parameters) {
  const Layout layout{.workers = 2, .servers = 2};
  const TrainingSetup setup = setup_of(2, {}, {.kind = Consistency::kAsync, .survives_losses = true});
  const std::string all = failure_of(layout, [&](group::Group& group) {
    Client client(group, layout, setup);
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    throw Error(ErrorCode::kIo, "the disk is full");
  });
  EXPECT_THAT(all, HasSubstr("all 2 workers have died"));
  const std::string first = failure_of(layout, [&](group::Group& group) {
    Client client(group, layout, setup);
    Tensors parameters = zeros();
    std::vector<double> values(1);
    client.sum(values);  // Now both are known.
    if (client.worker() == 0) throw Error(ErrorCode::kIo, "the disk is full");
    client.initialise(spans(parameters));
  });
  EXPECT_THAT(first, HasSubstr("worker 0 ended before it had set the parameters"));
}

}  // namespace
}  // namespace gyre::params
