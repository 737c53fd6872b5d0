// What workers send and keep: an optimizer's step and nothing else, and nothing of a gradient that is dropped.
#include "gyre/params/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "gyre/params/local_rounds.h"
#include "gyre/params/servers_test_support.h"

namespace gyre::params {
namespace {

using testing::HasSubstr;

/// Adds to every value.
void step_by(Tensors& parameters, float change) {
  for (auto& tensor : parameters) {
    for (float& value : tensor) value += change;
  }
}

TEST(HeldParameters, what_the_program_changes_by_itself_is_not_sent) {
  const ConsistencyOptions async{.kind = Consistency::kAsync, .survives_losses = true};
  run({.workers = 3, .servers = 2}, setup_of(2, {}, async), [&](Client& client) {
    HeldParameters held(client, async);
    Tensors parameters = zeros();
    held.begin(spans(parameters));
    step_by(parameters, 10);  // As a checkpoint that is loaded.
    ASSERT_TRUE(held.begin_step(spans(parameters)));
    step_by(parameters, 0.5F);
    held.finish_step(spans(parameters));
    held.settle(spans(parameters));
    EXPECT_EQ(parameters[1][100], 1.5F) << "the steps of three workers";
    step_by(parameters, static_cast<float>(10 + client.worker()));
    held.begin_again();
    held.settle(spans(parameters));
    EXPECT_EQ(parameters[1][100], 11.5F) << "unless it says so: the first worker's";
  });
}

TEST(HeldParameters, a_gradient_that_comes_too_late_never_reaches_the_optimizer) {
  const ConsistencyOptions backup{.backup_workers = 1, .survives_losses = true};
  std::atomic<int> steps_of_the_second = 0;
  run({.workers = 2, .servers = 2}, setup_of(2, {}, backup), [&](Client& client) {
    HeldParameters held(client, backup);
    Tensors parameters = zeros();
    held.begin(spans(parameters));
    for (int step = 0; step < 3; ++step) {
      // Worker 1 begins its second step when worker 0 has taken another one since its first.
      while (client.worker() == 1 && step == 1 && steps_of_the_second == 0) steps_of_the_second.wait(0);
      if (held.begin_step(spans(parameters))) {
        step_by(parameters, 1);
        held.finish_step(spans(parameters));
      } else {
        EXPECT_GT(parameters[1][100], 0) << "the servers' parameters";
      }
      if (client.worker() == 0 && step == 2) {
        steps_of_the_second = 1;
        steps_of_the_second.notify_all();
      }
    }
    held.settle(spans(parameters));
    std::vector<double> totals = {static_cast<double>(held.dropped_steps())};
    client.sum(totals);
    EXPECT_GE(totals[0], 1);
    EXPECT_EQ(parameters[1][100], 6 - static_cast<float>(totals[0])) << "all steps that were not dropped";
  });
}

TEST(HeldParameters, another_number_or_size_of_tensors_is_an_error) {
  const ConsistencyOptions async{.kind = Consistency::kAsync, .survives_losses = true};
  run({.workers = 1, .servers = 1}, setup_of(1, {}, async), [&](Client& client) {
    HeldParameters held(client, async);
    Tensors parameters = zeros();
    held.begin(spans(parameters));
    parameters[3].resize(65);
    try {
      held.begin_step(spans(parameters));
      ADD_FAILURE() << "a tensor has grown";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("tensor 3 has 65 values, not 64 as at first"));
    }
    parameters.pop_back();
    EXPECT_THROW(held.begin_step(spans(parameters)), Error);
  });
}

TEST(AveragedTensors, what_all_lack_stays_lacking_and_what_some_lack_counts_as_zeros) {
  TrainingSetup setup = setup_of(2, {.rule = Rule::kAverage});
  setup.tensor_values = AveragedTensors::sizes(kSizes);
  run({.workers = 2, .servers = 2}, setup, [&](Client& client) {
    AveragedTensors averaged(client);
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < kSizes.size(); ++i) {
        std::ranges::fill(averaged.memory()[i], 6.0F);
        averaged.set_present(i, i == 0 || (i == 1 && client.worker() == 1));
      }
      averaged.average();
      EXPECT_TRUE(averaged.is_present(0));
      EXPECT_TRUE(averaged.is_present(1));
      EXPECT_FALSE(averaged.is_present(2));
      EXPECT_EQ(averaged.memory()[0][4], 6);
      EXPECT_EQ(averaged.memory()[1][299], 3);
    }
  });
}

/// Two workers in one thread, which average by hand.
class TwoWorkers {
 public:
  explicit TwoWorkers(OuterOptimizer outer) {
    for (int worker = 0; worker < 2; ++worker) {
      rounds.emplace_back(2, outer, 2, std::vector<std::uint64_t>{3, 1});
      parameters.push_back({{1, 2, 3}, {4}});
      rounds.back().begin(spans(parameters.back()));
    }
  }

  /// Whether all settle.
  bool exchange(bool first_settles, bool second_settles) {
    std::vector<Tensors> differences(2, Tensors{std::vector<float>(3), std::vector<float>(1)});
    std::vector<std::vector<float>> notes(2, std::vector<float>(rounds[0].notes()));
    for (std::size_t i = 0; i < 2; ++i) {
      rounds[i].give(spans(parameters[i]), spans(differences[i]), notes[i], i == 0 ? first_settles : second_settles);
    }
    Tensors average = differences[0];
    std::vector<float> average_notes = notes[0];
    const auto add = [](std::vector<float>& to, const std::vector<float>& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = (to[i] + from[i]) / 2;
    };
    for (std::size_t i = 0; i < average.size(); ++i) add(average[i], differences[1][i]);
    add(average_notes, notes[1]);
    bool done = false;
    for (std::size_t i = 0; i < 2; ++i) {
      Tensors copy = average;
      done = rounds[i].take(spans(copy), average_notes, spans(parameters[i]));
    }
    EXPECT_EQ(parameters[0], parameters[1]);
    return done;
  }

  std::vector<LocalRounds> rounds;
  std::vector<Tensors> parameters;
};

TEST(LocalRounds, a_worker_that_is_done_contributes_nothing_until_all_are_done) {
  TwoWorkers job(OuterOptimizer::kAverage);
  job.parameters[0][0][0] = 5;
  EXPECT_FALSE(job.rounds[0].end_step({true, true}));
  job.parameters[1][0][0] = 3;
  EXPECT_FALSE(job.rounds[1].end_step({true, true}));
  EXPECT_TRUE(job.rounds[1].end_step({true, true}));
  EXPECT_FALSE(job.exchange(true, false)) << "worker 1 has steps left";
  EXPECT_EQ(job.parameters[0][0][0], 4);
  job.parameters[0][0][0] = 100;  // Not of a step.
  job.parameters[1][0][0] = 7;
  EXPECT_FALSE(job.rounds[1].end_step({true, false}));
  EXPECT_TRUE(job.exchange(true, true));
  EXPECT_EQ(job.parameters[0][0][0], 7) << "not half of the change";
  EXPECT_EQ(job.rounds[0].outer_steps(), 2U);
  EXPECT_TRUE(job.exchange(true, true));
  EXPECT_EQ(job.rounds[0].outer_steps(), 2U) << "there was nothing to do";
}

TEST(LocalRounds, the_outer_momentum_moves_no_tensor_that_has_been_frozen) {
  TwoWorkers job(OuterOptimizer::kNesterov);
  const auto round = [&](bool second_too) {
    for (std::size_t i = 0; i < 2; ++i) {
      job.parameters[i][0][0] += 1;
      if (second_too) job.parameters[i][1][0] += 1;
      job.rounds[i].end_step({true, second_too});
    }
    job.exchange(false, false);
  };
  round(true);
  const float frozen = job.parameters[0][1][0];
  EXPECT_NE(frozen, 4);
  round(false);
  EXPECT_EQ(job.parameters[0][1][0], frozen);
  EXPECT_NE(job.rounds[0].slot(0)[1][0], 0);
}

TEST(LocalRounds, workers_that_begin_with_different_parameters_are_told) {
  TwoWorkers job(OuterOptimizer::kAverage);
  job.parameters[1][1][0] += 1;
  job.rounds[1].begin(spans(job.parameters[1]));
  for (LocalRounds& rounds : job.rounds) rounds.end_step({true, true});
  EXPECT_THROW(job.exchange(false, false), Error);
}

TEST(LocalRounds, other_sizes_are_an_error) {
  TwoWorkers job(OuterOptimizer::kAverage);
  job.parameters[0][1].resize(2);
  EXPECT_THROW(job.rounds[0].begin(spans(job.parameters[0])), Error);
}

}  // namespace
}  // namespace gyre::params
