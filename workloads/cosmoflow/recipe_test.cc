// Configurations of the public benchmark have to mean here what they mean there, and a slip in one has to be named.
#include "workloads/cosmoflow/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gyre/base/error.h"

namespace gyre::cosmoflow {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

class RecipeTest : public testing::Test {
 protected:
  RecipeTest() {
    std::string pattern = (fs::temp_directory_path() / "gyre-recipe-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~RecipeTest() override { fs::remove_all(folder_); }

  Recipe read(const std::string& text) const {
    std::ofstream(folder_ / "cosmo.yaml") << text;
    Recipe recipe;
    read_config(folder_ / "cosmo.yaml", recipe);
    return recipe;
  }
  std::string refusal(const std::string& text) const {
    try {
      read(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "it was accepted";
  }

  fs::path folder_;
};

TEST_F(RecipeTest, the_benchmarks_own_configuration_is_understood) {
  const Recipe recipe = read(R"(
output_dir: results/cosmo-002
mlperf: {org: LBNL, division: closed}
data:
    name: cosmo
    data_dir: /data/cosmoUniverse_2019_05_4parE_tf_v2
    compression: GZIP
    n_train: 524288
    n_valid: 65536
    sample_shape: [128, 128, 128, 4]
    batch_size: 4
    n_epochs: 128
    shard: True
    apply_log: True
    prefetch: 4
model:
    name: cosmoflow
    input_shape: [128, 128, 128, 4]
    kernel_size: 2
    target_size: 4
    conv_size: 16
    fc1_size: 128
    fc2_size: 64
    hidden_activation: LeakyReLU
    pooling_type: MaxPool3D
    l2: 0.01
    dropout: 0
optimizer: {name: SGD, momentum: 0.8}
lr_schedule:
    base_lr: 0.0025
    scaling: sqrt
    base_batch_size: 32
    n_warmup_epochs: 6
    decay_schedule:
        16: 0.5
train:
    loss: mse
    metrics: ['mean_absolute_error']
    target_mae: 0.124
)");
  EXPECT_EQ(recipe.output_dir, "results/cosmo-002");
  EXPECT_EQ(recipe.data_dir, "/data/cosmoUniverse_2019_05_4parE_tf_v2");
  EXPECT_EQ(recipe.n_train, 524288U);
  EXPECT_EQ(recipe.network.size, 128);
  EXPECT_EQ(recipe.network.kernel_size, 2);
  EXPECT_EQ(recipe.network.conv_size, 16);
  EXPECT_EQ(recipe.l2, 0.01);
  EXPECT_EQ(recipe.network.dropout, 0);
  EXPECT_EQ(recipe.momentum, 0.8);
  EXPECT_EQ(recipe.decay_schedule, (std::map<std::uint64_t, double>{{16, 0.5}}));
  EXPECT_EQ(recipe.warmup_epochs, 6U);
  ASSERT_TRUE(recipe.target);
  EXPECT_EQ(recipe.target->value, 0.124);
  EXPECT_DOUBLE_EQ(peak_learning_rate(recipe, 512), 0.01);
}

TEST_F(RecipeTest, what_the_file_does_not_say_is_mlperfs_version_1) {
  const Recipe recipe = read("data: {data_dir: here}");
  EXPECT_EQ(recipe.network.kernel_size, 3);
  EXPECT_EQ(recipe.batch_size, 4U);
  EXPECT_DOUBLE_EQ(peak_learning_rate(recipe, 256), 0.004);
}

TEST_F(RecipeTest, a_schedule_without_scaling_stays_at_its_base_rate) {
  EXPECT_DOUBLE_EQ(peak_learning_rate(read("lr_schedule: {base_lr: 0.002}"), 4096), 0.002);
}

// Silence would let a person believe that a log is written.
TEST_F(RecipeTest, what_has_no_effect_is_listed) {
  const Recipe recipe = read("mlperf: {org: x}\ndata: {stage_dir: /tmp, prefetch: 4, compression: GZIP}\n");
  EXPECT_THAT(recipe.without_effect, testing::ElementsAre("mlperf", "data.stage_dir", "data.prefetch"));
}

TEST_F(RecipeTest, the_optimizers_rate_counts_where_there_is_no_schedule) {
  const Recipe constant = read("optimizer: {name: SGD, lr: 0.005}");
  EXPECT_DOUBLE_EQ(peak_learning_rate(constant, 4096), 0.005);
  EXPECT_EQ(constant.warmup_epochs, 0U);
  EXPECT_TRUE(constant.decay_schedule.empty());
  EXPECT_TRUE(constant.without_effect.empty());
  const Recipe scheduled = read("optimizer: {lr: 0.005}\nlr_schedule: {base_lr: 0.002}");
  EXPECT_DOUBLE_EQ(peak_learning_rate(scheduled, 4096), 0.002);
  EXPECT_THAT(scheduled.without_effect, testing::ElementsAre("optimizer.lr"));
}

TEST_F(RecipeTest, mistakes_are_named_with_their_line) {
  EXPECT_THAT(refusal("data:\n  bach_size: 4\n"), AllOf(HasSubstr("cosmo.yaml:2"), HasSubstr("'batch_size'")));
  EXPECT_THAT(refusal("data:\n  batch_size: four\n"), AllOf(HasSubstr(":2: data.batch_size"), HasSubstr("'four'")));
  EXPECT_THAT(refusal("data:\n  batch_size: -1\n"), HasSubstr("'-1'"));
  EXPECT_THAT(refusal("model: {name: cosmoflow_v1}"), HasSubstr("has cosmoflow only"));
  EXPECT_THAT(refusal("model: {hidden_activation: ReLU}"), HasSubstr("LeakyReLU"));
  EXPECT_THAT(refusal("data: {sample_shape: [128, 128, 64, 4]}"), HasSubstr("is not a cube"));
  EXPECT_THAT(refusal("model: {dropout: .nan}"), HasSubstr("a number from 0"));
  EXPECT_THAT(refusal("data: [1]"), HasSubstr("has to be a mapping"));
  EXPECT_THAT(refusal("data: {\n"), HasSubstr("cosmo.yaml:"));
  EXPECT_THAT(refusal(""), HasSubstr("has to be a mapping"));
}

}  // namespace
}  // namespace gyre::cosmoflow
