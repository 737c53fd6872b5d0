// TensorBoard must show the curves while training runs; tests/e2e reads a whole file back with the real package.
#include "gyre/data/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "gyre/base/checksum.h"
#include "gyre/data/formats/tfrecord.h"

namespace gyre::data {
namespace {

using namespace std::string_literals;
namespace fs = std::filesystem;

TEST(Tensorboard, an_event_is_the_protobuf_written_down_here) {
  const std::array<Scalar, 1> scalars = {Scalar{"loss", 0.5}};
  const Bytes event = scalar_event(1.0, 300, scalars);
  EXPECT_EQ(as_text(event),
            "\x09\x00\x00\x00\x00\x00\x00\xf0\x3f"s  // wall_time 1.0
            "\x10\xac\x02"s                          // step 300
            "\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f"s);
  EXPECT_THAT(std::string(as_text(version_event(1.0))), testing::EndsWith("\x1a\x0d"s + "brain.Event:2"));
}

TEST(Tensorboard, a_record_carries_its_length_and_both_checksums) {
  const Bytes record = framed_tfrecord(as_bytes("abc"));
  ASSERT_EQ(record.size(), 8U + 4 + 3 + 4);
  ByteReader reader(record, "record");
  const auto length = reader.bytes(8);
  EXPECT_EQ(as_text(length), "\x03\0\0\0\0\0\0\0"s);
  EXPECT_EQ(reader.u32(), masked_crc32c(length));
  EXPECT_EQ(reader.text(3), "abc");
  EXPECT_EQ(reader.u32(), masked_crc32c(as_bytes("abc")));
}

TEST(Tensorboard, two_writers_in_one_folder_get_files_of_their_own) {
  std::string pattern = (fs::temp_directory_path() / "gyre-tensorboard-test-XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  TensorboardWriter first(folder / "new");
  TensorboardWriter second(folder / "new");
  EXPECT_NE(first.path(), second.path());
  EXPECT_THAT(first.path().filename().string(), testing::StartsWith("events.out.tfevents."));
  const auto before = fs::file_size(first.path());
  const std::array<Scalar, 2> scalars = {Scalar{"epoch/loss", 2.0}, Scalar{"epoch/accuracy", 0.1}};
  first.add_scalars(1, scalars);
  EXPECT_GT(fs::file_size(first.path()), before) << "a value is in the file as soon as the call returns";
  fs::remove_all(folder);
}

}  // namespace
}  // namespace gyre::data
