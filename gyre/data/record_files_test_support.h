#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "gyre/data/formats/example.h"
#include "gyre/data/formats/tfrecord.h"

namespace gyre::data::testing {

/// A folder with files of records, removed at the end. Record i of a set holds i as "label" and as each of the `values`
/// int16 of "x".
class RecordFiles {
 public:
  RecordFiles()
      : folder_(std::filesystem::temp_directory_path() /
                ("gyre-records-" + std::to_string(::getpid()) + "-" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~RecordFiles() { std::filesystem::remove_all(folder_); }
  RecordFiles(const RecordFiles&) = delete;
  RecordFiles& operator=(const RecordFiles&) = delete;

  /// One more file of `records` records, which go on counting; returns its path.
  std::string add(std::uint64_t records, Compression compression = Compression::kNone, std::size_t values = 8) {
    std::vector<Bytes> payloads;
    for (std::uint64_t i = 0; i < records; ++i, ++count_) payloads.push_back(record(count_, values));
    names_.push_back((folder_ / ("part-" + std::to_string(names_.size()) + ".tfrecord")).string());
    write_tfrecords(names_.back(), payloads, compression);
    return names_.back();
  }
  /// Of a file of another kind in the folder.
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  const std::vector<std::string>& names() const { return names_; }

 private:
  static Bytes record(std::uint64_t number, std::size_t values) {
    const std::vector<std::int16_t> x(values, static_cast<std::int16_t>(number));
    ExampleWriter writer;
    writer.add_bytes("x", std::as_bytes(std::span(x)));
    writer.add_ints("label", std::array{static_cast<std::int64_t>(number)});
    return writer.take();
  }

  std::filesystem::path folder_;
  std::vector<std::string> names_;
  std::uint64_t count_ = 0;
};

/// The label of a record that RecordFiles made.
inline std::int64_t label_of(std::span<const std::byte> payload) {
  std::array<std::int64_t, 1> label{-1};
  const Example example(payload);
  EXPECT_TRUE(example.find("label") != nullptr && example.find("label")->copy_ints(label));
  return label[0];
}

}  // namespace gyre::data::testing
