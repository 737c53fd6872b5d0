// The promises of the first workload: the network as published, runs that repeat bit for bit, and go on after a stop.
#include "workloads/cifar10/training.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/data/formats/cifar10_images.h"
#include "gyre/models/cifar10_cnn.h"
#include "gyre/models/network.h"
#include "gyre/train/checkpoint.h"
#include "gyre/train/gradient_exchange.h"

namespace gyre::cifar10 {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

/// A set in which class c is a bright square in place c: easy enough to be learned in seconds.
void write_squares(const fs::path& folder, std::uint64_t images_per_file) {
  Random random(3);
  for (int file = 0; file < 6; ++file) {
    const std::string name = file == 5 ? "test_batch.bin" : fmt::format("data_batch_{}.bin", file + 1);
    std::ofstream out(folder / name, std::ios::binary);
    for (std::uint64_t i = 0; i < images_per_file; ++i) {
      const auto label = static_cast<std::size_t>(random.below(10));
      std::string record(1 + data::kCifar10ImageBytes, '\0');
      record[0] = static_cast<char>(label);
      for (std::size_t value = 0; value < data::kCifar10ImageBytes; ++value) {
        const std::size_t row = value % 1024 / 32;
        const std::size_t column = value % 32;
        const bool inside = row / 8 == label / 4 && column / 8 == label % 4;
        record[1 + value] = static_cast<char>(random.below(60) + (inside ? 150 : 0));
      }
      out << record;
    }
  }
}

class TrainingTest : public testing::Test {
 protected:
  TrainingTest() {
    std::string pattern = (fs::temp_directory_path() / "gyre-training-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    fs::create_directories(folder_ / "data");
    write_squares(folder_ / "data", 24);
  }
  ~TrainingTest() override { fs::remove_all(folder_); }

  Options options(const std::string& run) const {
    Options result;
    result.data_dir = folder_ / "data";
    result.checkpoint_dir = folder_ / run / "checkpoints";
    result.tensorboard_dir = folder_ / run / "tensorboard";
    result.batch_size = 32;
    result.epochs = 2;
    result.learning_rate = 1e-3;
    result.verbose = 0;
    return result;
  }

  static training::Outcome train(const Options& options) {
    train::LocalExchange exchange;
    return run_training(options, exchange);
  }

  fs::path folder_;
};

TEST(Network, starts_from_the_same_bits_everywhere) {
  const models::Network network(models::cifar10_cnn({}), 1);
  EXPECT_EQ(train::hash_tensors(train::named_parameters(network)), 14699801031716918201U);
}

TEST_F(TrainingTest, learns_and_stops_at_the_target) {
  Options learn = options("learn");
  learn.epochs = 40;
  learn.target = {.metric = "accuracy", .value = 0.9};
  const training::Outcome outcome = train(learn);
  EXPECT_TRUE(outcome.target_reached) << "test accuracy " << outcome.test[kAccuracy];
  EXPECT_LT(outcome.epochs, 40U);
}

TEST_F(TrainingTest, the_same_run_gives_the_same_bits) {
  EXPECT_EQ(train(options("first")).state_hash, train(options("second")).state_hash);
  Options other = options("third");
  other.shuffle_seed = 9;
  EXPECT_NE(train(other).state_hash, train(options("fourth")).state_hash);
}

TEST_F(TrainingTest, stopped_and_resumed_equals_never_stopped_bit_for_bit) {
  Options straight = options("straight");
  straight.flip = straight.shift = true;
  straight.epochs = 4;
  Options stopped = straight;
  stopped.checkpoint_dir = folder_ / "stopped";
  stopped.epochs = 2;
  train(stopped);
  stopped.epochs = 4;
  stopped.resume = true;
  const training::Outcome resumed = train(stopped);
  const training::Outcome whole = train(straight);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
  EXPECT_EQ(resumed.epochs, 4U);
  EXPECT_EQ(resumed.test, whole.test);
}

TEST_F(TrainingTest, ranks_played_by_one_process_train_the_same_network_as_one_rank_with_the_whole_batch) {
  // Same samples, same dropout, same mean; only the order of the additions differs.
  Options one = options("one");
  one.epochs = 1;
  one.batch_size = 64;
  Options four = options("four");
  four.epochs = 1;
  four.batch_size = 16;
  four.play_ranks = 4;
  const training::Outcome whole = train(one);
  const training::Outcome played = train(four);
  EXPECT_NEAR(played.train[kLoss], whole.train[kLoss], 1e-3);
  EXPECT_NEAR(played.test[kLoss], whole.test[kLoss], 1e-2);
}

TEST_F(TrainingTest, a_checkpoint_cut_short_is_passed_over_on_resume) {
  Options run = options("cut");
  train(run);
  fs::resize_file(run.checkpoint_dir / "checkpoint-000000000240.safetensors", 5000);
  run.resume = true;
  testing::internal::CaptureStderr();
  const training::Outcome resumed = train(run);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("checkpoint is cut short: 5000 of"));
  EXPECT_EQ(resumed.state_hash, train(options("never cut")).state_hash);
}

TEST_F(TrainingTest, a_run_that_diverges_fails_at_once_and_keeps_its_finite_checkpoints) {
  // Five epochs of "loss nan" ended with success, and had replaced every finite checkpoint.
  Options run = options("diverging");
  run.keep_checkpoints = 1;
  run.epochs = 1;
  train(run);
  run.resume = true;
  run.learning_rate = 1e30;
  run.epochs = 9;
  try {
    train(run);
    FAIL() << "it went on";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::ContainsRegex("loss on rank 0 is not finite in step [0-9] of epoch 2"));
  }
  std::vector<fs::path> left(fs::directory_iterator(run.checkpoint_dir), fs::directory_iterator());
  ASSERT_EQ(left.size(), 1U);
  run.learning_rate = 1e-3;
  run.epochs = 2;
  EXPECT_EQ(train(run).epochs, 2U);
}

TEST_F(TrainingTest, weights_that_are_not_finite_are_not_saved_although_no_loss_has_shown_them) {
  // The last step of an epoch can break them: its loss was that of the weights before.
  Options run = options("last step");
  run.batch_size = 120;
  run.learning_rate = 3e38;
  EXPECT_THROW(train(run), Error);
  EXPECT_TRUE(fs::is_empty(run.checkpoint_dir));
}

TEST_F(TrainingTest, weights_that_are_finite_and_too_large_to_compute_with_are_not_saved) {
  // The next forward pass found it, behind a checkpoint from which no run could go on.
  Options run = options("too large");
  run.checkpoint_steps = 1;
  run.keep_checkpoints = 1;
  run.epochs = 1;
  train(run);
  run.resume = true;
  run.epochs = 3;
  run.learning_rate = 1e12;
  try {
    train(run);
    FAIL() << "it went on";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(HasSubstr("the loss on rank 0 is not finite in a forward pass after step 1 of epoch 2"),
                               HasSubstr("checkpoint-000000000120.safetensors is from before")));
  }
  run.learning_rate = 1e-3;
  run.epochs = 2;
  EXPECT_EQ(train(run).epochs, 2U);
}

TEST_F(TrainingTest, an_earlier_runs_checkpoints_are_not_overwritten_by_accident) {
  train(options("run"));
  try {
    train(options("run"));
    FAIL() << "the earlier run's checkpoints were ignored";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--resume"));
  }
}

TEST_F(TrainingTest, an_earlier_runs_best_epoch_is_not_taken_for_the_new_ones) {
  // Its checkpoints were removed; the new run kept the old file wherever that was better.
  Options run = options("run");
  run.keep_best = "accuracy";
  train(run);
  for (const auto& entry : fs::directory_iterator(run.checkpoint_dir)) {
    if (entry.path().filename().string().starts_with("checkpoint-")) fs::remove(entry.path());
  }
  for (const bool resume : {false, true}) {
    run.resume = resume;
    try {
      train(run);
      FAIL() << "the earlier run's best epoch was ignored";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("best-accuracy.safetensors is the best epoch of an earlier"),
                                               HasSubstr("choose another folder with --checkpoint-dir")));
    }
  }
  fs::remove(run.checkpoint_dir / "best-accuracy.safetensors");
  EXPECT_EQ(train(run).epochs, 2U);
}

TEST_F(TrainingTest, a_resumed_run_that_has_nothing_to_train_says_so) {
  Options run = options("run");
  train(run);
  run.resume = true;
  run.verbose = 2;
  for (const std::uint64_t epochs : {1U, 2U}) {
    run.epochs = epochs;
    testing::internal::CaptureStdout();
    EXPECT_EQ(train(run).epochs, 2U);
    EXPECT_THAT(testing::internal::GetCapturedStdout(),
                HasSubstr(fmt::format("nothing to train: 2 epochs are finished, and --epochs is {}", epochs)));
  }
}

TEST_F(TrainingTest, a_number_of_classes_that_the_data_does_not_have_is_refused) {
  // CIFAR-10's files have ten, and a network for ten was trained whatever had been asked for.
  Options run = options("classes");
  run.classes = 100;
  run.classes_given = true;
  try {
    train(run);
    FAIL() << "100 classes were accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--classes is 100, and the data in"));
  }
  run.classes = 10;
  EXPECT_EQ(train(run).epochs, 2U);
}

TEST_F(TrainingTest, a_damaged_image_stops_training_with_the_files_name) {
  std::fstream file(folder_ / "data" / "data_batch_3.bin", std::ios::binary | std::ios::in | std::ios::out);
  file.put('\x63');
  file.close();
  try {
    train(options("damaged"));
    FAIL() << "the label 99 was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("data_batch_3.bin"), HasSubstr("label 99")));
  }
}

TEST_F(TrainingTest, smarker_mode_runs_every_image_on_every_rank) {
  Options run = options("smarker");
  run.every_rank_all_images = true;
  EXPECT_EQ(train(run).epochs, 2U);
}

}  // namespace
}  // namespace gyre::cifar10
