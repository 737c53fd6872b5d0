// A run went on with other labels and other images, because these had the names of those before.
#include "gyre/data/contents_digest.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/data/formats/cifar10_images.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/record_files_test_support.h"
#include "gyre/data/sample_subset.h"
#include "gyre/data/tar_test_support.h"

namespace gyre::data {
namespace {

namespace fs = std::filesystem;
using testing::RecordFiles;

/// With which every set is a large one.
constexpr DigestLimits kLarge{.whole_bytes = 0, .files = 1000, .pieces = 2};

ContentsDigest digest(const std::vector<std::string>& names, const DigestLimits& limits = {}) {
  return digest_contents(names, open_local_file, *open_samples(names, open_local_file, {}), limits);
}

void write(const std::string& path, std::string_view contents) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << contents;
}

/// Other contents of the same length.
void change_byte(const std::string& path, std::uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const int before = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(before ^ 1));
}

TEST(ContentsDigest, a_copy_is_the_same_whatever_its_time_of_change) {
  RecordFiles files;
  write(files.path("set/cat/1.jpg"), "cat");
  write(files.path("set/dog/1.jpg"), "dog");
  fs::copy(files.path("set"), files.path("copy"), fs::copy_options::recursive);
  fs::last_write_time(files.path("copy/cat/1.jpg"), fs::file_time_type::clock::now() - std::chrono::hours(50));
  for (const DigestLimits& limits : {DigestLimits{}, kLarge}) {
    EXPECT_EQ(digest({files.path("set")}, limits).sizes, digest({files.path("copy")}, limits).sizes);
    EXPECT_EQ(digest({files.path("set")}, limits).contents, digest({files.path("copy")}, limits).contents);
  }
}

TEST(ContentsDigest, an_image_in_the_place_of_another_one_shows) {
  RecordFiles files;
  const std::vector<std::string> set = {files.path("set")};
  write(files.path("set/cat/1.jpg"), "first");
  write(files.path("set/dog/1.jpg"), "other");
  for (const DigestLimits& limits : {DigestLimits{}, kLarge}) {
    const ContentsDigest before = digest(set, limits);
    write(files.path("set/cat/1.jpg"), "third");
    const ContentsDigest same_size = digest(set, limits);
    EXPECT_EQ(same_size.sizes, before.sizes);
    EXPECT_NE(same_size.contents, before.contents);
    write(files.path("set/cat/1.jpg"), "longer");
    EXPECT_NE(digest(set, limits).sizes, before.sizes);
    write(files.path("set/cat/1.jpg"), "first");
    EXPECT_EQ(digest(set, limits).contents, before.contents);
  }
}

/// A file of a server: its version is an ETag.
class FarFile : public ReadableFile {
 public:
  FarFile(const std::string& name, std::string version) : file_(open_local_file(name)), version_(std::move(version)) {}

  const std::string& name() const override { return file_->name(); }
  std::uint64_t size_bytes() const override { return file_->size_bytes(); }
  std::string version() const override { return version_; }
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    file_->read_at(offset_bytes, into);
  }

 private:
  std::unique_ptr<const ReadableFile> file_;
  std::string version_;
};

class FarFolders : public Folders {
 public:
  FileKind kind(const std::string& name) const override { return local_folders()->kind(name); }
  std::vector<FolderEntry> list(const std::string& folder) const override { return local_folders()->list(folder); }
  bool are_far() const override { return true; }
};

TEST(ContentsDigest, of_files_that_are_far_away_the_versions_are_compared) {
  // A run went on with other labels where an object was replaced by one of the same size.
  RecordFiles files;
  files.add(10, Compression::kNone, 100);
  files.add(10, Compression::kNone, 100);
  std::string etag = "\"1\"";
  const FileOpener open(
      [&](const std::string& name) {
        return std::make_unique<FarFile>(name, name == files.names()[1] ? etag : "\"0\"");
      },
      std::make_shared<FarFolders>());
  const auto far_digest = [&] { return digest_contents(files.names(), open, *open_samples(files.names(), open, {})); };
  const ContentsDigest before = far_digest();
  EXPECT_FALSE(before.contents);
  ASSERT_TRUE(before.versions);
  EXPECT_EQ(far_digest().versions, before.versions);
  etag = "\"2\"";
  EXPECT_EQ(far_digest().sizes, before.sizes);
  EXPECT_EQ(far_digest().versions->place, before.versions->place);
  EXPECT_NE(far_digest().versions->versions, before.versions->versions);
}

TEST(ContentsDigest, of_a_part_held_out_the_other_part_does_not_matter) {
  RecordFiles files;
  for (const char* name : {"cat/1.jpg", "cat/2.jpg", "dog/1.jpg"}) write(files.path("set/") + name, name);
  const std::vector<std::string> names = {files.path("set")};
  const auto part =
      std::make_shared<SampleSubset>(open_samples(names, open_local_file, {}), std::vector<std::uint64_t>{0, 2});
  const auto before = digest_contents(names, open_local_file, *part).contents;
  write(files.path("set/cat/2.jpg"), "cat/3.jpg");
  EXPECT_EQ(digest_contents(names, open_local_file, *part).contents, before);
  write(files.path("set/dog/1.jpg"), "dog/3.jpg");
  EXPECT_NE(digest_contents(names, open_local_file, *part).contents, before);
}

TEST(ContentsDigest, of_a_large_set_of_records_each_ones_checksum_is_compared) {
  for (const Compression compression : {Compression::kNone, Compression::kGzip}) {
    RecordFiles files;
    files.add(50, compression, 4000);
    files.add(50, compression, 4000);
    const auto before = digest(files.names(), kLarge).contents;
    RecordFiles others;
    others.add(20, compression, 4000);  // The same records in other files are other sets.
    others.add(80, compression, 4000);
    EXPECT_NE(digest(others.names(), kLarge).contents, before);
  }
  RecordFiles files;
  files.add(50, Compression::kNone, 4000);
  const auto set = open_samples(files.names(), open_local_file, {});
  const std::uint64_t before = set->contents_checksum();
  // Another record in the middle, of the same length, with its own checksum: such as an example with another label.
  const auto places = index_tfrecords(*open_local_file(files.names().front()));
  change_byte(files.names().front(), places[20].end_bytes() - 2);
  const auto changed = open_samples(files.names(), open_local_file, {});
  EXPECT_NE(changed->contents_checksum(), before);
  EXPECT_NE(first_samples(changed, 40)->contents_checksum(), before);
}

TEST(ContentsDigest, labels_in_files_are_compared_one_by_one) {
  RecordFiles files;
  const std::string images = files.path("train-images-idx3-ubyte");
  const std::string labels = files.path("train-labels-idx1-ubyte");
  constexpr int kCount = 100;
  const std::string extents = std::string(3, '\0') + static_cast<char>(kCount);
  const std::string side = std::string(2, '\0') + '\x01' + '\0';  // 256.
  write(images, std::string("\0\0\x08\x03", 4) + extents + side + side + std::string(kCount * 256 * 256, 'x'));
  write(labels, std::string("\0\0\x08\x01", 4) + extents + std::string(kCount, '\x01'));
  const auto idx = digest({images, labels}, kLarge).contents;
  change_byte(labels, 8 + 50);
  EXPECT_NE(digest({images, labels}, kLarge).contents, idx);

  const std::string batch = files.path("data_batch_1.bin");
  write(batch, std::string(40 * (1 + kCifar10ImageBytes), '\x01'));
  const auto cifar = digest({batch}).contents;
  change_byte(batch, 13 * (1 + kCifar10ImageBytes));
  EXPECT_NE(digest({batch}).contents, cifar);
}

TEST(ContentsDigest, a_label_in_an_archive_is_compared) {
  RecordFiles files;
  const std::string path = files.path("train-0.tar");
  const std::string image(20'000, 'x');
  const auto write_archive = [&](const std::string& label) {
    std::string archive;
    for (const std::string key : {"a", "b", "c"}) {
      archive += testing::tar_entry(key + ".jpg", image) + testing::tar_entry(key + ".cls", key == "b" ? label : "0");
    }
    write(path, archive + std::string(1024, '\0'));
  };
  write_archive("1");
  const auto before = digest({path}, kLarge).contents;
  write_archive("2");
  EXPECT_NE(digest({path}, kLarge).contents, before);
}

}  // namespace
}  // namespace gyre::data
