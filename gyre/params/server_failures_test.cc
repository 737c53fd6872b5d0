// Workers that die, fail or disagree: the others go on, or end with one message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <sstream>
#include <thread>

#include "gyre/params/servers_test_support.h"

namespace gyre::params {
namespace {

using testing::HasSubstr;

class Survivors : public testing::TestWithParam<ConsistencyOptions> {};

TEST_P(Survivors, go_on_when_a_worker_dies_between_any_two_messages) {
  const Layout layout{.workers = 3, .servers = 2};
  for (const int died_at : {0, 1, 2}) {
    std::atomic<int> finished = 0;
    run(layout, setup_of(2, {.rate = 0.1}, GetParam()), [&](Client& client) {
      Tensors parameters = first_parameters();
      client.initialise(spans(parameters));
      for (int step = 0; step < 4; ++step) {
        if (client.worker() == died_at && step == 2) throw Error(ErrorCode::kPeerLost, "its host has lost the network");
        const Tensors gradients = gradients_of(parameters, client.worker(), step);
        take_step(client, in_turns(client.worker(), step), gradients, parameters);
      }
      std::vector<double> sum = {1};
      client.sum(sum);
      EXPECT_EQ(sum[0], 2);
      std::vector<double> values(10, client.worker());
      client.broadcast(std::as_writable_bytes(std::span(values)));
      EXPECT_EQ(values[0], died_at == 0 ? 1 : 0) << "those of the first survivor";
      ++finished;
    });
    EXPECT_EQ(finished, 2);
  }
}

TEST_P(Survivors, end_with_the_reason_of_a_worker_whose_work_has_failed) {
  const Layout layout{.workers = 3, .servers = 2};
  const TrainingSetup setup = setup_of(2, {.rate = 0.1}, GetParam());
  const std::string failure = failure_of(layout, [&](group::Group& group) {
    Client client(group, layout, setup);
    Tensors parameters = first_parameters();
    client.initialise(spans(parameters));
    for (int step = 0; step < 1000; ++step) {
      if (client.worker() == 2 && step == 2) throw Error(ErrorCode::kInvalidArgument, "the training diverged");
      const Tensors gradients = gradients_of(parameters, client.worker(), step);
      take_step(client, in_turns(client.worker(), step), gradients, parameters);
    }
    client.settle(spans(parameters));  // Here at the latest.
  });
  EXPECT_THAT(failure, HasSubstr("the training diverged"));
  EXPECT_THAT(failure, testing::Not(HasSubstr("parameter server")));
}

INSTANTIATE_TEST_SUITE_P(ParameterServers, Survivors,
                         testing::Values(ConsistencyOptions{.survives_losses = true},
                                         ConsistencyOptions{.backup_workers = 1, .survives_losses = true},
                                         ConsistencyOptions{.kind = Consistency::kAsync, .survives_losses = true},
                                         ConsistencyOptions{
                                             .kind = Consistency::kBounded, .staleness = 1, .survives_losses = true}));

TEST(ParameterServers, in_sync_the_survivors_average_over_themselves) {
  const Layout layout{.workers = 3, .servers = 2};
  run(layout, setup_of(2, {.rate = -1}, {.survives_losses = true}), [&](Client& client) {
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    Tensors gradients = zeros();
    gradients[1][100] = static_cast<float>(client.worker());
    take_step(client, in_turns(client.worker(), 0), gradients, parameters);
    EXPECT_EQ(parameters[1][100], 1) << "the mean of 0, 1 and 2";
    if (client.worker() == 2) throw Error(ErrorCode::kPeerLost, "its host has lost the network");
    const Client::Outcome outcome = take_step(client, true, gradients, parameters);
    EXPECT_EQ(parameters[1][100], 1.5F) << "and that of 0 and 1";
    EXPECT_THAT(outcome.contributors, testing::ElementsAre(0, 1));
  });
}

TEST(ParameterServers, workers_that_disagree_fail_with_one_message) {
  const Layout layout{.workers = 2, .servers = 2};
  const std::string setups = failure_of(layout, [&](group::Group& group) {
    Client client(group, layout, setup_of(2, {.momentum = 0.1 * group.rank()}));
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
  });
  EXPECT_THAT(setups, HasSubstr("workers 0 and 1 have different parameters"));
  const std::string rates = failure_of(layout, [&](group::Group& group) {
    Client client(group, layout, setup_of(2, {}));
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    client.set_options({{.rate = 0.1 * (1 + group.rank())}});
    client.step(views(parameters), spans(parameters));
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
    client.step(views(parameters), spans(parameters));
  });
  EXPECT_THAT(failure, HasSubstr("the disk of worker 1 is full"));
}

TEST(ParameterServers, end_with_one_message_when_all_workers_have_died) {
  const Layout layout{.workers = 2, .servers = 2};
  const TrainingSetup setup = setup_of(2, {}, {.kind = Consistency::kAsync, .survives_losses = true});
  const std::string all = failure_of(layout, [&](group::Group& group) {
    Client client(group, layout, setup);
    Tensors parameters = zeros();
    client.initialise(spans(parameters));
    throw Error(ErrorCode::kPeerLost, "its host has lost the network");
  });
  EXPECT_THAT(all, HasSubstr("all 2 workers have died"));
}

TEST(ParameterServers, the_first_worker_alive_sets_the_parameters) {
  const Layout layout{.workers = 3, .servers = 2};
  const TrainingSetup setup = setup_of(2, {}, {.kind = Consistency::kAsync, .survives_losses = true});
  std::atomic<int> finished = 0;
  run(layout, setup, [&](Client& client) {
    Tensors parameters = zeros();
    parameters[0][0] = static_cast<float>(client.worker());
    std::vector<double> values(1);
    client.sum(values);  // Now all are known.
    if (client.worker() == 0) throw Error(ErrorCode::kPeerLost, "its host has lost the network");
    client.initialise(spans(parameters));
    EXPECT_EQ(parameters[0][0], 1);
    ++finished;
  });
  EXPECT_EQ(finished, 2);
}

/// Otherwise the two would wait for each other without a word.
TEST(ParameterServers, unequal_numbers_of_steps_in_sync_are_refused_with_both_counts) {
  const Layout layout{.workers = 3, .servers = 2};
  for (const bool survives : {false, true}) {
    const TrainingSetup setup = setup_of(2, {.rule = Rule::kAverage}, {.survives_losses = survives});
    const std::string failure = failure_of(layout, [&](group::Group& group) {
      Client client(group, layout, setup);
      Tensors gradients = zeros();
      for (int step = 0; step < 2 + client.worker(); ++step) take_step(client, true, gradients, gradients);
      client.settle(spans(gradients));
    });
    EXPECT_THAT(failure, testing::ContainsRegex("worker 0 is at settle.. after 2 steps, and worker [12] takes step 3"));
  }
}

TEST(ParameterServers, workers_that_meet_for_different_things_fail_with_one_message) {
  const Layout layout{.workers = 2, .servers = 1};
  const std::string failure = failure_of(layout, [&](group::Group& group) {
    Client client(group, layout, setup_of(1, {.rule = Rule::kAverage}));
    Tensors tensors = zeros();
    std::vector<double> values(1);
    if (client.worker() == 0) return client.sum(values);
    client.settle(spans(tensors));
  });
  EXPECT_THAT(failure, HasSubstr("adding up metrics"));
  EXPECT_THAT(failure, HasSubstr("at settle()"));
  EXPECT_THAT(failure, HasSubstr("all workers have to make these calls in the same order"));
}

TEST(ParameterServers, a_wait_for_another_worker_is_reported_and_ends_the_job_after_the_limit) {
  const Layout layout{.workers = 2, .servers = 2};
  std::ostringstream log;
  const auto logger = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
  const ServerOptions options{.stall_warning = std::chrono::milliseconds(20),
                              .stall_failure = std::chrono::milliseconds(200),
                              .logger = logger};
  std::string failure;
  try {
    group::run_in_process(layout.size(), [&](group::Group& group) {
      if (layout.is_server(group.rank())) return static_cast<void>(serve(group, layout, options));
      Client client(group, layout, setup_of(2, {.rule = Rule::kAverage}));
      Tensors gradients = zeros();
      take_step(client, true, gradients, gradients);
      if (client.worker() == 0) take_step(client, true, gradients, gradients);
      while (!group.abort_signal().reason()) std::this_thread::yield();  // Worker 1 computes.
      group.abort_signal().throw_if_triggered();
    });
  } catch (const Error& error) {
    failure = error.what();
  }
  EXPECT_THAT(failure,
              HasSubstr("a worker has waited longer than GYRE_STALL_FAILURE_SECONDS for the others: worker 0"));
  EXPECT_THAT(failure, testing::ContainsRegex("worker 0 .* has waited 0 s in its step 2; worker 1 .* has not asked the "
                                              "servers for anything for 0 s; it was last in its step 1"));
  EXPECT_THAT(log.str(), HasSubstr("workers wait for each other at the parameter servers: worker 0"));
}

/// Every consistency, uneven data: after settle() all have the same values, and each worker's steps are in them.
TEST(ParameterServers, settle_waits_for_the_worker_with_the_most_steps) {
  const Layout layout{.workers = 3, .servers = 2};
  for (const ConsistencyOptions& consistency :
       {ConsistencyOptions{.backup_workers = 1, .survives_losses = true},
        ConsistencyOptions{.kind = Consistency::kAsync, .survives_losses = true},
        ConsistencyOptions{.kind = Consistency::kBounded, .staleness = 1, .survives_losses = true}}) {
    std::vector<Tensors> results(3);
    run(layout, setup_of(2, {}, consistency), [&](Client& client) {
      Tensors parameters = zeros();
      client.initialise(spans(parameters));
      Tensors gradients = zeros();
      for (int epoch = 0; epoch < 3; ++epoch) {
        for (int step = 0; step < 4 * client.worker(); ++step) {
          gradients[1][100] = -1;
          take_step(client, in_turns(client.worker(), step), gradients, parameters);
        }
        client.settle(spans(parameters));
        if (consistency.backup_workers == 0) {
          EXPECT_EQ(parameters[1][100], 12.0F * static_cast<float>(epoch + 1));
        }
      }
      results[static_cast<std::size_t>(client.worker())] = parameters;
    });
    EXPECT_EQ(results[0], results[2]);
    EXPECT_EQ(results[1], results[2]);
  }
}

}  // namespace
}  // namespace gyre::params
