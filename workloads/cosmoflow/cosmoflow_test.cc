// The promises of the second workload: the network as published, runs that repeat bit for bit, and that go on in the
// middle of an epoch as if they had never stopped.
#include "workloads/cosmoflow/cosmoflow.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/data/formats/example.h"
#include "gyre/data/formats/tfrecord.h"
#include "workloads/cosmoflow/symmetry.h"

namespace gyre::cosmoflow {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::int64_t kSize = 8;

TEST(CosmoflowSymmetry, a_cube_has_48_and_each_keeps_its_neighbourhoods) {
  const at::Tensor volume = at::arange(2 * 27, at::kFloat).view({2, 3, 3, 3});
  std::set<std::vector<float>> seen;
  for (std::uint64_t symmetry = 0; symmetry < kCubeSymmetries; ++symmetry) {
    const at::Tensor copy = turned(volume, symmetry).contiguous();
    seen.emplace(copy.const_data_ptr<float>(), copy.const_data_ptr<float>() + copy.numel());
    EXPECT_TRUE(at::equal(std::get<0>(copy[0].flatten().sort()), volume[0].flatten())) << "channels stay apart";
    EXPECT_EQ(copy[0][1][1][1].item<float>(), 13) << "the centre stays";
  }
  EXPECT_EQ(seen.size(), kCubeSymmetries);
  EXPECT_TRUE(at::equal(turned(volume, 0), volume));
}

TEST(CosmoflowSymmetry, how_a_sample_is_turned_does_not_depend_on_its_batch) {
  const at::Tensor volumes = at::arange(4 * 8, at::kFloat).view({4, 1, 2, 2, 2});
  const at::Tensor together = turned_at_random(volumes, std::vector<std::uint64_t>{7, 8, 9, 10}, 1, 5);
  const at::Tensor alone = turned_at_random(volumes.narrow(0, 2, 1), std::vector<std::uint64_t>{9}, 1, 5);
  EXPECT_TRUE(at::equal(together[2], alone[0]));
  EXPECT_FALSE(at::equal(together, turned_at_random(volumes, std::vector<std::uint64_t>{7, 8, 9, 10}, 1, 6)));
}

/// Counts that are the larger the larger the four targets are, each in a channel of its own.
void write_volumes(const fs::path& folder, std::uint64_t count, std::uint64_t seed) {
  fs::create_directories(folder);
  for (std::uint64_t i = 0; i < count; ++i) {
    Random random(seed, i);
    std::vector<float> targets(4);
    for (float& target : targets) target = random.uniform(-1.0F, 1.0F);
    std::vector<std::int16_t> counts(kSize * kSize * kSize * 4);
    for (std::size_t k = 0; k < counts.size(); ++k) {
      counts[k] = static_cast<std::int16_t>(random.below(3 + static_cast<std::uint64_t>(40 * (1 + targets[k % 4]))));
    }
    data::ExampleWriter writer;
    writer.add_bytes("x", std::as_bytes(std::span(counts)));
    writer.add_floats("y", targets);
    const std::vector<Bytes> records = {writer.take()};
    data::write_tfrecords(folder / fmt::format("univ_{:03}.tfrecord", i), records, data::Compression::kNone);
  }
}

class CosmoflowTest : public testing::Test {
 protected:
  CosmoflowTest() {
    std::string pattern = (fs::temp_directory_path() / "gyre-cosmoflow-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    write_volumes(folder_ / "train", 42, 1);
    write_volumes(folder_ / "validation", 9, 2);
  }
  ~CosmoflowTest() override { fs::remove_all(folder_); }

  Recipe recipe(const std::string& run) const {
    Recipe recipe;
    recipe.data_dir = folder_;
    recipe.output_dir = folder_ / run;
    recipe.network = {.size = 0, .convolutions = 2, .conv_size = 4, .fc1_size = 16, .fc2_size = 8, .dropout = 0.25};
    recipe.epochs = 2;
    recipe.base_batch_size = 4;
    recipe.base_lr = 0.004;
    recipe.warmup_epochs = 1;
    recipe.verbose = 0;
    return recipe;
  }
  static training::Outcome train(const Recipe& recipe) {
    train::LocalExchange exchange;
    return run_training(recipe, exchange);
  }
  std::string failure(const Recipe& recipe) const {
    try {
      train(recipe);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing failed";
  }

  fs::path folder_;
};

TEST_F(CosmoflowTest, learns_and_stops_at_the_target) {
  Recipe learn = recipe("learn");
  learn.epochs = 60;
  learn.network.dropout = 0;
  learn.target = {.metric = "mae", .value = 0.41};
  const training::Outcome outcome = train(learn);
  EXPECT_TRUE(outcome.target_reached) << "MAE " << outcome.test[kMae];
  EXPECT_LT(outcome.epochs, 60U);
  EXPECT_GT(outcome.test[kMaeOfZeros], 0.45);
}

TEST_F(CosmoflowTest, turned_volumes_train_too_and_the_same_run_gives_the_same_bits) {
  Recipe recipe = this->recipe("turned");
  recipe.augment = true;
  const auto first = train(recipe);
  Recipe again = this->recipe("turned again");
  again.augment = true;
  EXPECT_EQ(train(again).state_hash, first.state_hash);
  EXPECT_NE(train(this->recipe("not turned")).state_hash, first.state_hash);
}

TEST_F(CosmoflowTest, the_same_run_gives_the_same_bits_whatever_the_threads) {
  Recipe second = recipe("second");
  second.threads = 3;
  EXPECT_EQ(train(recipe("first")).state_hash, train(second).state_hash);
  Recipe other = recipe("third");
  other.seed = 9;
  EXPECT_NE(train(other).state_hash, train(recipe("fourth")).state_hash);
}

TEST_F(CosmoflowTest, stopped_in_the_middle_of_an_epoch_and_resumed_equals_never_stopped_bit_for_bit) {
  const training::Outcome whole = train(recipe("whole"));
  Recipe stopped = recipe("stopped");
  stopped.checkpoint_steps = 4;
  stopped.keep_checkpoints = 100;
  train(stopped);
  // 42 samples in batches of 4 are 11 steps; what was written after step 8 of the second epoch is what a kill leaves.
  const fs::path checkpoints = folder_ / "stopped" / "checkpoints";
  ASSERT_TRUE(fs::remove(checkpoints / "checkpoint-000000000084.safetensors"));
  ASSERT_TRUE(fs::exists(checkpoints / "checkpoint-000000000074.safetensors"));
  stopped.resume = true;
  const training::Outcome resumed = train(stopped);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
  EXPECT_EQ(resumed.train, whole.train);
  EXPECT_EQ(resumed.test, whole.test);
}

TEST_F(CosmoflowTest, a_resume_with_other_batches_is_refused_or_goes_on_at_the_same_sample) {
  Recipe run = recipe("run");
  run.checkpoint_steps = 9;
  run.epochs = 1;
  train(run);
  fs::remove(folder_ / "run" / "checkpoints" / "checkpoint-000000000042.safetensors");
  run.resume = true;
  run.batch_size = 8;
  EXPECT_THAT(failure(run),
              testing::AllOf(HasSubstr("the global batch was 4 and is 8"), HasSubstr("--resume-changed")));
  run.resume_changed = true;
  EXPECT_EQ(train(run).epochs, 1U);
  EXPECT_TRUE(fs::exists(folder_ / "run" / "checkpoints" / "checkpoint-000000000042.safetensors"));
}

TEST_F(CosmoflowTest, mistakes_in_the_data_are_named) {
  Recipe nowhere = recipe("nowhere");
  nowhere.data_dir = folder_ / "absent";
  EXPECT_THAT(failure(nowhere), testing::AllOf(HasSubstr("absent does not exist"), HasSubstr("gyre.datasets cosmo")));
  Recipe greedy = recipe("greedy");
  greedy.n_train = 1000;
  EXPECT_THAT(failure(greedy), HasSubstr("n_train asks for 1000 samples"));
  Recipe other = recipe("other");
  other.network.size = 16;
  EXPECT_THAT(failure(other), HasSubstr("[16, 16, 16, 4] of int16"));
  fs::resize_file(folder_ / "train" / "univ_000.tfrecord", 100);
  EXPECT_THAT(failure(recipe("cut")), HasSubstr("univ_000.tfrecord: record 0"));
}

}  // namespace
}  // namespace gyre::cosmoflow
