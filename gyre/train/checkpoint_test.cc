// Days of training hang on one file: these tests show that it comes back exactly, or that its damage is noticed.
#include "gyre/train/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = (fs::temp_directory_path() / "gyre-checkpoint-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

const std::string kWeights = "0123456789abcdef01234567";  // 2 x 3 float32.

Checkpoint example(const std::string& epoch = "12") {
  Checkpoint checkpoint;
  checkpoint.metadata = {{"epoch", epoch}, {"seed", "7"}};
  checkpoint.tensors.push_back({"conv/weight", "float32", {2, 3}, as_bytes(kWeights)});
  checkpoint.tensors.push_back({"step", "uint8", {}, as_bytes("x")});
  checkpoint.tensors.push_back({"nothing", "int64", {0, 4}, {}});
  return checkpoint;
}

std::string failure_of(const Bytes& bytes) {
  try {
    decode_checkpoint(bytes, "file");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(CheckpointTest, what_was_saved_comes_back) {
  const Bytes bytes = encode_checkpoint(example());
  const Checkpoint loaded = decode_checkpoint(bytes, "file");
  EXPECT_EQ(loaded.metadata, example().metadata);
  ASSERT_EQ(loaded.tensors.size(), 3U);
  EXPECT_EQ(as_text(loaded.tensor("conv/weight").bytes), kWeights);
  EXPECT_THAT(loaded.tensor("conv/weight").shape, ElementsAre(2, 3));
  EXPECT_EQ(as_text(loaded.tensor("step").bytes), "x");
  EXPECT_TRUE(loaded.tensor("nothing").bytes.empty());
  EXPECT_THROW(loaded.tensor("other"), Error);
  EXPECT_EQ(bytes.size() % 64, 25U)
      << "the header ends at a multiple of 64, and nothing is between or behind the tensors";
}

TEST_F(CheckpointTest, every_cut_is_noticed_and_called_a_cut) {
  const Bytes bytes = encode_checkpoint(example());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THAT(failure_of(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length))),
                HasSubstr("cut short"));
  }
}

TEST_F(CheckpointTest, every_flipped_bit_is_noticed) {
  const Bytes good = encode_checkpoint(example());
  for (std::size_t i = 0; i < good.size() * 8; ++i) {
    Bytes bad = good;
    bad[i / 8] ^= static_cast<std::byte>(1U << (i % 8));
    EXPECT_NE(failure_of(bad), "") << "bit " << i;
  }
}

/// `bytes` with another text in its header, and the checksum that belongs to it.
Bytes with_another_header(Bytes bytes, const std::string& from, const std::string& to) {
  std::string text(as_text(bytes));
  text.replace(text.find(from), from.size(), to);
  const std::string prefix = "xxh3:";
  const std::size_t digits = text.find(prefix) + prefix.size();
  text.replace(digits, 16, "0000000000000000");
  text.replace(digits, 16, fmt::format("{:016x}", xxh3_64(as_bytes(text))));
  const auto changed = as_bytes(text);
  return {changed.begin(), changed.end()};
}

TEST_F(CheckpointTest, a_header_that_lies_under_a_right_checksum_is_refused) {
  const Bytes good = encode_checkpoint(example());
  EXPECT_THAT(failure_of(with_another_header(good, "[2,3]", "[9,9]")), HasSubstr("conv/weight lies outside the file"));
  EXPECT_THAT(failure_of(with_another_header(good, "\"F32\"", "\"F99\"")), HasSubstr("unknown type"));
  EXPECT_THAT(failure_of(with_another_header(good, "\"step\"", "\"stop\"")), "") << "the change itself is no failure";
  EXPECT_THAT(failure_of(with_another_header(good, "\"gyre_checkpoint\":\"2\"", "\"gyre_checkpoint\":\"3\"")),
              HasSubstr("format version 3"));
}

// People look at checkpoints with the tools they have.
TEST_F(CheckpointTest, the_file_is_safetensors_with_the_metadata_as_text) {
  const Bytes bytes = encode_checkpoint(example());
  ByteReader reader(bytes, "file");
  const auto header = nlohmann::json::parse(reader.text(reader.u64()));
  EXPECT_EQ(header.at("__metadata__").at("epoch"), "12");
  EXPECT_EQ(header.at("__metadata__").at("format"), "pt");
  EXPECT_EQ(header.at("conv/weight").at("dtype"), "F32");
  EXPECT_EQ(header.at("conv/weight").at("shape"), nlohmann::json({2, 3}));
  EXPECT_EQ(header.at("nothing").at("data_offsets"), nlohmann::json({0, 0})) << "8-byte elements come first";
  EXPECT_EQ(header.at("conv/weight").at("data_offsets"), nlohmann::json({0, 24}));
  EXPECT_EQ(header.at("step").at("data_offsets"), nlohmann::json({24, 25}));
}

TEST_F(CheckpointTest, what_is_no_checkpoint_of_ours_is_said_to_be_that) {
  const auto failure_of_text = [](std::string_view text) {
    const auto bytes = as_bytes(text);
    return failure_of(Bytes(bytes.begin(), bytes.end()));
  };
  EXPECT_THAT(failure_of_text("GYRECKPT and more"), HasSubstr("format version 1"));
  EXPECT_THAT(failure_of_text(std::string("\2\0\0\0\0\0\0\0{}", 10)), HasSubstr("not a checkpoint of Gyre"));
}

TEST_F(CheckpointTest, only_the_newest_are_kept) {
  const CheckpointFolder folder(folder_, 2);
  for (std::uint64_t epoch = 1; epoch <= 5; ++epoch) folder.save(epoch, example(std::to_string(epoch)));
  EXPECT_THAT(folder.numbers(), ElementsAre(4, 5));
  EXPECT_EQ(folder.find_latest_valid()->checkpoint.value("epoch"), "5");
}

TEST_F(CheckpointTest, an_empty_folder_has_no_latest) {
  EXPECT_FALSE(CheckpointFolder(folder_ / "new", 1).find_latest_valid().has_value());
}

TEST_F(CheckpointTest, a_checkpoint_cut_short_is_passed_over_for_the_one_before) {
  const CheckpointFolder folder(folder_, 3);
  folder.save(1, example("1"));
  const fs::path newest = folder.save(2, example("2"));
  fs::resize_file(newest, 100);
  const auto found = folder.find_latest_valid();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->checkpoint.value("epoch"), "1");
  EXPECT_THAT(found->rejected, ElementsAre(HasSubstr("cut short: 100 of")));
  fs::resize_file(found->path, 10);
  EXPECT_THROW(folder.find_latest_valid(), Error);
}

TEST_F(CheckpointTest, a_checkpoint_that_the_caller_cannot_use_is_passed_over_too) {
  const CheckpointFolder folder(folder_, 3);
  folder.save(1, example("1"));
  folder.save(2, example("2"));
  const auto found = folder.find_latest_valid([](const Checkpoint& checkpoint) {
    if (checkpoint.value("epoch") == "2") throw Error(ErrorCode::kCorruptData, "weights that are not numbers");
  });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->number, 1U);
  EXPECT_THAT(found->rejected, ElementsAre(HasSubstr("checkpoint-000000000002.safetensors: weights that are not")));
}

TEST_F(CheckpointTest, files_of_earlier_versions_are_seen_under_their_shorter_names) {
  const CheckpointFolder folder(folder_, 2);
  fs::rename(folder.save(7, example("7")), folder_ / "checkpoint-00000007.safetensors");
  EXPECT_EQ(folder.find_latest_valid()->path, folder_ / "checkpoint-00000007.safetensors");
  folder.save(8, example("8"));
  folder.save(9, example("9"));
  EXPECT_THAT(folder.numbers(), ElementsAre(8, 9));
}

TEST_F(CheckpointTest, a_full_disk_is_a_clear_error_and_the_previous_checkpoint_is_intact) {
  const CheckpointFolder folder(folder_, 1);
  folder.save(1, example("1"));
  // A limit on the size of files stands for the full disk: write fails half way in the same place.
  struct rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit tiny{100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tiny), 0);
  std::string message;
  try {
    folder.save(2, example("2"));
  } catch (const Error& error) {
    message = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(message,
              testing::AllOf(HasSubstr("after 2 samples could not be saved"),
                             HasSubstr("checkpoint-000000000001.safetensors is intact"), HasSubstr("File too large")));
  EXPECT_EQ(folder.find_latest_valid()->checkpoint.value("epoch"), "1");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "no temporary is left";
}

}  // namespace
}  // namespace gyre::train
