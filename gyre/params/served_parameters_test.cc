// Parameters that the servers step: tables, of which only rows travel, are trained as dense tensors would be, to the
// bit.
#include "gyre/params/served_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "gyre/params/internal/table_rows.h"
#include "gyre/params/servers_test_support.h"

namespace gyre::params {
namespace {

using testing::HasSubstr;

constexpr std::size_t kRows = 41;
constexpr std::size_t kColumns = 3;

const UpdateOptions kAdagradOptions{.rule = Rule::kAdagrad, .rate = 0.1, .epsilon = 1e-10, .lr_decay = 0.01};

/// Of one worker in one step: sometimes nothing, or no rows.
struct RandomGradient {
  bool present = true;
  Rows rows;

  RandomGradient(Random& random, bool whole_numbers) {
    present = random.below(5) > 0;
    std::set<std::uint64_t> numbers;
    for (std::uint64_t left = present ? random.below(12) : 0; left > 0; --left) numbers.insert(random.below(kRows));
    rows.numbers.assign(numbers.begin(), numbers.end());
    for (std::size_t i = 0; i < rows.numbers.size() * kColumns; ++i) {
      rows.values.push_back(whole_numbers ? static_cast<float>(random.below(7)) - 3 : random.uniform(-1, 1));
    }
  }

  std::vector<float> dense() const {
    std::vector<float> values(kRows * kColumns);
    for (std::size_t i = 0; i < rows.numbers.size(); ++i) {
      std::ranges::copy(std::span(rows.values).subspan(i * kColumns, kColumns),
                        std::span(values).subspan(rows.numbers[i] * kColumns, kColumns).begin());
    }
    return values;
  }
};

RandomGradient gradient_of(std::uint64_t seed, int worker, int step, bool whole_numbers) {
  Random random(seed + 1000 * static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(worker));
  return {random, whole_numbers};
}

std::vector<float> first_table() {
  Random random(11);
  std::vector<float> table(kRows * kColumns);
  for (float& value : table) value = random.uniform(-1, 1);
  return table;
}

/// A worker's copy of one tensor and one table.
struct Copy {
  Copy(Client& client, const TrainingSetup& setup) : served(client, setup) {}

  bool step(const RandomGradient& gradient, const UpdateOptions& options) {
    const std::vector<float> ones(tensor.size(), 1);
    return served.step({.tensors = {ones}, .rows = {gradient.rows}, .present = {true, gradient.present}}, {options},
                       parameters, tables);
  }
  void settle() { served.settle(parameters, tables); }

  ServedParameters served;
  std::vector<float> tensor = std::vector<float>(10);
  std::vector<float> table = first_table();
  std::vector<std::span<float>> parameters{tensor};
  std::vector<std::span<float>> tables{table};
};

TrainingSetup setup_with_table(int servers, const UpdateOptions& options, const ConsistencyOptions& consistency = {}) {
  return {.tensor_values = {10},
          .shards = {.servers = servers, .values_per_block = 4},
          .groups = {options},
          .tables = {{.rows = kRows, .columns = kColumns}},
          .consistency = consistency};
}

/// The table of workers in sync, as a dense tensor in one process.
std::vector<float> train_dense(std::uint64_t seed, int workers, int steps, UpdateOptions options) {
  std::vector<float> table = first_table();
  std::vector<float> slot(table.size());
  std::uint64_t taken = 0;
  for (int step = 0; step < steps; ++step) {
    std::vector<std::vector<float>> gradients;
    bool present = false;
    for (int worker = 0; worker < workers; ++worker) {
      const RandomGradient gradient = gradient_of(seed, worker, step, false);
      gradients.push_back(gradient.dense());
      present = present || gradient.present;
    }
    if (!present) continue;
    std::vector<float> mean(table.size());
    std::vector<const std::byte*> sources;
    for (const auto& one : gradients) sources.push_back(reinterpret_cast<const std::byte*>(one.data()));
    collectives::reduce(reinterpret_cast<std::byte*>(mean.data()), sources, mean.size(),
                        collectives::DataType::kFloat32, collectives::ReduceOperation::kSum,
                        {.divisor = static_cast<double>(workers)});
    options.rate = 0.1 / (1 + step);
    std::vector<std::span<float>> slots;
    if (options.rule == Rule::kAdagrad) slots.emplace_back(slot);
    UpdateRule(options).apply(table, mean, slots, ++taken);
  }
  return table;
}

TEST(ServedParameters, a_table_in_sync_is_a_dense_tensor_bit_for_bit) {
  constexpr int kSteps = 12;
  for (const UpdateOptions& options : {UpdateOptions{.rate = 0.1}, kAdagradOptions}) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const int workers = 1 + static_cast<int>(seed % 3);
      const Layout layout{.workers = workers, .servers = 1 + static_cast<int>(seed / 2)};
      const std::vector<float> expected = train_dense(seed, workers, kSteps, options);
      // Of a quorum, too.
      const TrainingSetup setup = setup_with_table(layout.servers, options, {.survives_losses = seed % 2 == 1});
      run(layout, setup, [&](Client& client) {
        Copy copy(client, setup);
        if (client.worker() > 0) std::ranges::fill(copy.table, 77.0F);  // The first one's counts.
        UpdateOptions scheduled = options;
        for (int step = 0; step < kSteps; ++step) {
          scheduled.rate = 0.1 / (1 + step);
          EXPECT_TRUE(copy.step(gradient_of(seed, client.worker(), step, false), scheduled));
        }
        EXPECT_EQ(copy.table, expected) << "seed " << seed << ", worker " << client.worker();
        copy.settle();
        EXPECT_EQ(copy.table, expected);
      });
    }
  }
}

TEST(ServedParameters, without_sync_every_row_is_stepped_once_and_all_end_equal) {
  constexpr int kSteps = 15;
  const Layout layout{.workers = 3, .servers = 2};
  std::vector<float> expected = first_table();
  for (float& value : expected) value = 0;
  for (int worker = 0; worker < layout.workers; ++worker) {
    for (int step = 0; step < kSteps; ++step) {
      std::ranges::transform(expected, gradient_of(5, worker, step, true).dense(), expected.begin(), std::minus<>());
    }
  }
  for (const ConsistencyOptions& consistency :
       {ConsistencyOptions{.kind = Consistency::kAsync}, {.kind = Consistency::kBounded, .staleness = 2}}) {
    const TrainingSetup setup = setup_with_table(layout.servers, {}, consistency);
    run(layout, setup, [&](Client& client) {
      Copy copy(client, setup);
      std::ranges::fill(copy.table, 0.0F);
      for (int step = 0; step < kSteps; ++step) copy.step(gradient_of(5, client.worker(), step, true), {});
      copy.settle();
      EXPECT_EQ(copy.table, expected) << "whole numbers are added without rounding";
    });
  }
}

TEST(ServedParameters, a_late_worker_gets_the_rows_that_it_has_missed) {
  const Layout layout{.workers = 2, .servers = 2};
  const TrainingSetup setup = setup_with_table(layout.servers, {}, {.backup_workers = 1});
  run(layout, setup, [&](Client& client) {
    Copy copy(client, setup);
    std::vector<double> meeting;
    copy.served.begin(copy.parameters, copy.tables);
    std::ranges::fill(copy.table, client.worker() == 0 ? 5.0F : 6.0F);  // It is not sent.
    if (client.worker() == 0) {
      for (int step = 0; step < 4; ++step) EXPECT_TRUE(copy.step(gradient_of(9, 0, step, false), {}));
    }
    client.sum(meeting);
    if (client.worker() == 1) {
      EXPECT_FALSE(copy.step(gradient_of(9, 1, 0, false), {}));
      EXPECT_EQ(copy.served.dropped_steps(), 1U);
    }
    client.sum(meeting);
    copy.settle();
    std::vector<float> expected = first_table();
    for (int step = 0; step < 4; ++step) {
      std::ranges::transform(expected, gradient_of(9, 0, step, false).dense(), expected.begin(), std::minus<>());
    }
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(copy.table[i], expected[i], 1e-5);
  });
}

TEST(ServedParameters, a_saved_state_continues_as_if_nothing_had_happened) {
  constexpr int kSteps = 10;
  const Layout layout{.workers = 2, .servers = 3};
  const TrainingSetup setup = setup_with_table(layout.servers, kAdagradOptions);
  std::vector<TensorState> states;
  std::vector<float> tensor;
  std::vector<float> table;
  const auto train = [&](int first, int end, bool loads, bool saves) {
    run(layout, setup, [&](Client& client) {
      Copy copy(client, setup);
      if (loads) {
        copy.served.load_state(states);
        std::ranges::copy(tensor, copy.tensor.begin());
        std::ranges::copy(table, copy.table.begin());
      }
      for (int step = first; step < end; ++step) {
        copy.step(gradient_of(3, client.worker(), step, false), kAdagradOptions);
      }
      copy.settle();
      if (!saves || client.worker() != 1) return;
      states = copy.served.state();
      tensor = copy.tensor;
      table = copy.table;
    });
  };
  train(0, kSteps, false, true);
  const std::vector<float> whole = table;
  const std::vector<TensorState> whole_states = states;
  EXPECT_EQ(states.size(), 2U);
  train(0, 4, false, true);
  train(4, kSteps, true, true);
  EXPECT_EQ(table, whole);
  EXPECT_EQ(states, whole_states);
}

TEST(ServedParameters, what_cannot_be_is_an_error_before_anything_is_sent) {
  const Layout layout{.workers = 1, .servers = 2};
  const TrainingSetup setup = setup_with_table(layout.servers, kAdagradOptions);
  run(layout, setup, [&](Client& client) {
    Copy copy(client, setup);
    const auto failure = [&](Rows rows, const UpdateOptions& options = kAdagradOptions) -> std::string {
      RandomGradient gradient = gradient_of(1, 0, 0, false);
      gradient.rows = std::move(rows);
      try {
        copy.step(gradient, options);
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    const std::vector<float> values(2 * kColumns, 1.0F);
    EXPECT_THAT(failure({{3, kRows}, values}), HasSubstr("has row 41; the table has 41 rows"));
    EXPECT_THAT(failure({{3, 3}, values}), HasSubstr("not ascending"));
    EXPECT_THAT(failure({{4, 3}, values}), HasSubstr("not ascending"));
    EXPECT_THAT(failure({{3}, values}), HasSubstr("1 rows and 6 values"));
    EXPECT_THAT(failure({{3, 4}, values}, {.rule = Rule::kSgd}), HasSubstr("the optimizer cannot change"));
    EXPECT_THAT(failure({{3, 4}, values}, {.rule = Rule::kAdagrad, .weight_decay = 1}),
                HasSubstr("without weight decay"));
    EXPECT_THROW(copy.served.load_state(std::vector<TensorState>(2)), Error) << "of another optimizer";
    EXPECT_EQ(failure({{3, 4}, values}), "") << "nothing of all this has been sent";
  });
}

TEST(ServedParameters, a_server_refuses_rows_that_it_does_not_have) {
  internal::TableRows rows(3, 2);
  const std::array<std::uint32_t, 3> good = {1, 4, 7};
  std::ranges::copy(good, rows.numbers().begin());
  EXPECT_NO_THROW(rows.check(8));
  EXPECT_THROW(rows.check(7), Error);
  rows.numbers()[1] = 1;
  EXPECT_THROW(rows.check(8), Error);
}

TEST(ServedParameters, absent_tensors_keep_their_momentum_and_steps) {
  const Layout layout{.workers = 2, .servers = 1};
  const UpdateOptions adam{.rule = Rule::kAdam, .rate = 0.1};
  const TrainingSetup setup{
      .tensor_values = {3, 3}, .groups = {adam, {.rule = Rule::kAdam, .rate = 0.01}}, .group_of_tensor = {0, 1}};
  run(layout, setup, [&](Client& client) {
    ServedParameters served(client, setup);
    std::vector<float> first(3);
    std::vector<float> second(3);
    const std::vector<std::span<float>> parameters{first, second};
    const std::vector<float> gradient{1, 2, 3};
    for (int step = 0; step < 4; ++step) {
      // The second tensor has a gradient on worker 0 alone, in every other step.
      const bool has_second = client.worker() == 0 && step % 2 == 0;
      served.step({.tensors = {gradient, gradient}, .rows = {}, .present = {true, has_second}}, setup.groups,
                  parameters, {});
    }
    const std::vector<TensorState> states = served.state();
    EXPECT_EQ(states[0].steps, 4U);
    EXPECT_EQ(states[1].steps, 2U);
    for (std::size_t i = 0; i < first.size(); ++i) {  // Adam with equal gradients steps by its rate.
      EXPECT_NEAR(first[i], -0.4F, 1e-4F);
      EXPECT_NEAR(second[i], -0.02F, 1e-4F);
    }
  });
}

}  // namespace
}  // namespace gyre::params
