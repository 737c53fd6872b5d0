// A setup travels from the workers to the servers: what arrives has to be what was sent, or an error.
#include "gyre/params/setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::params {
namespace {

using testing::HasSubstr;

TrainingSetup some_setup() {
  TrainingSetup setup;
  setup.tensor_values = {3, 0, 70};
  setup.names = 0x123456789abcdef0;
  setup.shards = {
      .servers = 2, .values_per_block = 16, .placement = Placement::kExplicit, .server_of_tensor = {1, 0, 1}};
  setup.update = {.rule = Rule::kRmsprop, .momentum = 0.5, .weight_decay = 1e-4, .centered = true, .epsilon = 1e-7};
  setup.consistency = {.kind = Consistency::kBounded, .staleness = 3};
  return setup;
}

TEST(TrainingSetupTest, arrives_as_it_was_sent) {
  const TrainingSetup setup = some_setup();
  const TrainingSetup arrived = decode_setup(encode(setup));
  EXPECT_EQ(arrived.tensor_values, setup.tensor_values);
  EXPECT_EQ(arrived.names, setup.names);
  EXPECT_EQ(arrived.shards.servers, setup.shards.servers);
  EXPECT_EQ(arrived.shards.values_per_block, setup.shards.values_per_block);
  EXPECT_EQ(arrived.shards.placement, setup.shards.placement);
  EXPECT_EQ(arrived.shards.server_of_tensor, setup.shards.server_of_tensor);
  EXPECT_EQ(arrived.update, setup.update);
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
  TrainingSetup setup = some_setup();
  setup.update = {.rule = Rule::kAverage};
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

}  // namespace
}  // namespace gyre::params
