// A setup travels from the workers to the servers: what arrives has to be what was sent, or an error.
#include "gyre/params/setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/params/internal/step_notes.h"

namespace gyre::params {
namespace {

using testing::HasSubstr;

TrainingSetup some_setup() {
  TrainingSetup setup;
  setup.tensor_values = {3, 0, 70};
  setup.names = 0x123456789abcdef0;
  setup.shards = {.servers = 2, .values_per_block = 16};
  setup.groups = {{.rule = Rule::kAdagrad, .rate = 0.5, .weight_decay = 1e-4, .epsilon = 1e-7, .lr_decay = 0.1},
                  {.rule = Rule::kAdagrad, .initial_accumulator = 0.25}};
  setup.group_of_tensor = {0, 1, 0};
  setup.tables = {{.rows = 100, .columns = 8, .group = 1}, {.rows = 1, .columns = 3, .group = 1}};
  setup.consistency = {
      .kind = Consistency::kBounded, .staleness = 3, .survives_losses = true, .needs_first_worker = true};
  return setup;
}

TEST(TrainingSetupTest, arrives_as_it_was_sent) {
  const TrainingSetup setup = some_setup();
  const TrainingSetup arrived = decode_setup(encode(setup));
  EXPECT_EQ(arrived.tensor_values, setup.tensor_values);
  EXPECT_EQ(arrived.names, setup.names);
  EXPECT_EQ(arrived.shards.servers, setup.shards.servers);
  EXPECT_EQ(arrived.shards.values_per_block, setup.shards.values_per_block);
  EXPECT_EQ(arrived.groups, setup.groups);
  EXPECT_EQ(arrived.group_of_tensor, setup.group_of_tensor);
  EXPECT_EQ(arrived.tables, setup.tables);
  EXPECT_EQ(arrived.consistency, setup.consistency);
}

TEST(TrainingSetupTest, bytes_that_are_not_one_are_an_error_and_never_more) {
  const Bytes good = encode(some_setup());
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(decode_setup(std::span(good).first(size)), Error) << size;
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THROW(decode_setup(longer), Error);
  Random random(5);
  for (int i = 0; i < 5000; ++i) {
    Bytes changed = good;
    changed[random.below(changed.size())] = static_cast<std::byte>(random.next_u32() & 0xff);
    try {
      decode_setup(changed);
    } catch (const Error&) {  // Or it was another setup.
      continue;
    }
  }
}

TEST(TrainingSetupTest, averaging_without_sync_is_refused_before_anything_begins) {
  TrainingSetup setup{.tensor_values = {3}, .groups = {{.rule = Rule::kAverage}}};
  setup.consistency = {.kind = Consistency::kAsync};
  try {
    check(setup);
    FAIL() << "nobody would ever update the parameters";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("choose an optimizer that runs on the servers"));
  }
}

TEST(TrainingSetupTest, options_out_of_range_are_named_as_torch_names_them) {
  for (const UpdateOptions& wrong :
       {UpdateOptions{.momentum = -1}, UpdateOptions{.rule = Rule::kAdam, .beta1 = 1}, UpdateOptions{.epsilon = -1e-8},
        UpdateOptions{.weight_decay = -1}, UpdateOptions{.nesterov = true}}) {
    EXPECT_THROW(UpdateRule{wrong}, Error);
  }
}

TEST(TrainingSetupTest, tables_need_an_optimizer_that_leaves_other_rows_alone) {
  for (const UpdateOptions& options :
       {UpdateOptions{.momentum = 0.9}, UpdateOptions{.weight_decay = 0.1}, UpdateOptions{.rule = Rule::kAdam},
        UpdateOptions{.rule = Rule::kAdagrad, .weight_decay = 0.1}, UpdateOptions{.rule = Rule::kAverage}}) {
    EXPECT_THROW(check({.groups = {options}, .tables = {{.rows = 10}}}), Error) << rule_name(options.rule);
  }
  EXPECT_NO_THROW(check({.groups = {{.rule = Rule::kAdagrad}}, .tables = {{.rows = 10}}}));
  EXPECT_THROW(check({.tables = {{.rows = kMostTableRows + 1}}}), Error);
  EXPECT_THROW(check({.tables = {{.rows = 10, .columns = 0}}}), Error);
}

TEST(TrainingSetupTest, groups_that_do_not_fit_are_refused) {
  EXPECT_THROW(check({.tensor_values = {3}, .groups = {}}), Error);
  EXPECT_THROW(check({.tensor_values = {3}, .groups = {{}, {.rule = Rule::kAdam}}}), Error);
  EXPECT_THROW(check({.tensor_values = {3, 3}, .group_of_tensor = {0}}), Error);
  EXPECT_THROW(check({.tensor_values = {3}, .group_of_tensor = {1}}), Error);
  EXPECT_THROW(check({.groups = {{.rule = Rule::kAdagrad}}, .tables = {{.rows = 10, .group = 1}}}), Error);
  EXPECT_THROW(check({.tensor_values = {0, 0}}), Error) << "there is nothing to train";
}

TEST(TrainingSetupTest, each_row_is_on_one_server) {
  for (const std::uint64_t rows : {0, 1, 2, 3, 7, 100}) {
    for (const int servers : {1, 2, 3, 5}) {
      std::uint64_t total = 0;
      for (int server = 0; server < servers; ++server) {
        total += rows_of_server({.rows = rows}, server, servers);
      }
      EXPECT_EQ(total, rows);
    }
  }
}

TEST(StepNotesTest, arrive_as_they_were_sent_or_are_an_error) {
  const TrainingSetup setup = some_setup();
  const internal::StepNotes notes{
      .groups = setup.groups, .present = {true, false, true, false, true}, .table_rows = {7, 1}};
  const Bytes good = encode(notes);
  EXPECT_EQ(internal::decode_notes(good, setup), notes);
  EXPECT_EQ(internal::decode_notes(encode(internal::StepNotes{}), setup), internal::StepNotes{});
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(internal::decode_notes(std::span(good).first(size), setup), Error) << size;
  }
  TrainingSetup other = setup;
  other.tables.pop_back();
  EXPECT_THROW(internal::decode_notes(good, other), Error);
}

}  // namespace
}  // namespace gyre::params
