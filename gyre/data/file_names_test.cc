// Every reader finds files through the opener that it is given, wherever these lie; and a file that is opened again
// must be the one that was opened first.
#include "gyre/data/file_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/data_sets.h"
#include "gyre/data/formats/cifar10.h"
#include "gyre/data/image_folder.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/record_files_test_support.h"
#include "gyre/data/record_set.h"
#include "gyre/data/tar_test_support.h"

namespace gyre::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryFile;
using testing::RecordFiles;

/// Files in memory, by their names, which are those of no machine.
class MemoryFolders : public Folders, public std::enable_shared_from_this<MemoryFolders> {
 public:
  explicit MemoryFolders(std::map<std::string, std::string> files) : files_(std::move(files)) {}

  FileOpener opener() {
    const auto self = shared_from_this();
    return {[self](const std::string& name) -> std::unique_ptr<const ReadableFile> {
              return std::make_unique<MemoryFile>(name, self->files_.at(name));
            },
            self};
  }

  FileKind kind(const std::string& name) const override {
    if (files_.contains(name)) return FileKind::kFile;
    const auto below = files_.lower_bound(with_slash(name));
    return below != files_.end() && below->first.starts_with(with_slash(name)) ? FileKind::kFolder : FileKind::kMissing;
  }
  std::vector<FolderEntry> list(const std::string& folder) const override {
    const std::string prefix = with_slash(folder);
    std::map<std::string, FileKind> entries;
    for (const auto& [name, contents] : files_) {
      if (!name.starts_with(prefix)) continue;
      const std::string rest = name.substr(prefix.size());
      const std::size_t slash = rest.find('/');
      entries[rest.substr(0, slash)] = slash == std::string::npos ? FileKind::kFile : FileKind::kFolder;
    }
    std::vector<FolderEntry> found;
    for (const auto& [name, kind] : entries) found.push_back({.name = name, .kind = kind});
    return found;
  }

 private:
  static std::string with_slash(const std::string& name) { return name.ends_with('/') ? name : name + "/"; }

  std::map<std::string, std::string> files_;
};

std::shared_ptr<MemoryFolders> folders_of(const std::vector<std::string>& names) {
  std::map<std::string, std::string> files;
  for (const std::string& name : names) files.emplace(name, "contents");
  return std::make_shared<MemoryFolders>(std::move(files));
}

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(FindFiles, patterns_are_matched_part_by_part_wherever_the_files_lie) {
  const auto files = folders_of({"mem://box/set/train-1.bin", "mem://box/set/train-0.bin", "mem://box/set/.train-9.bin",
                                 "mem://box/set/x/deep.bin", "mem://box/set/y/deep.bin", "mem://box/set/[1].bin"});
  const FileOpener open = files->opener();
  EXPECT_THAT(find_files("mem://box/set/train-*", open),
              ElementsAre("mem://box/set/train-0.bin", "mem://box/set/train-1.bin"));
  EXPECT_THAT(find_files("mem://box/set/train-[!0].bin", open), ElementsAre("mem://box/set/train-1.bin"));
  EXPECT_THAT(find_files("mem://box/*/?/deep.bin", open),
              ElementsAre("mem://box/set/x/deep.bin", "mem://box/set/y/deep.bin"));
  EXPECT_THAT(find_files("mem://box/set/[1].bin", open), ElementsAre("mem://box/set/[1].bin"));
  EXPECT_THAT(find_files("mem://box/set/x", open), ElementsAre("mem://box/set/x/deep.bin"));
  EXPECT_THAT(error_of([&] { find_files("mem://box/set/?", open); }), HasSubstr("matches only folders"));
  EXPECT_THAT(error_of([&] { find_files("mem://box/sat/*", open); }), HasSubstr("no file is called"));
}

TEST(FindFiles, patterns_of_this_machine_are_read_as_pythons_glob_reads_them) {
  RecordFiles files;
  const std::string first = files.add(1);
  const std::string second = files.add(1);
  std::ofstream(files.path(".part-7.tfrecord")) << "hidden";
  EXPECT_THAT(find_files(files.path("part-*"), open_local_file), ElementsAre(first, second));
  EXPECT_THAT(find_files(files.path("*"), open_local_file), ElementsAre(first, second));
  EXPECT_THAT(find_files("/*" + first.substr(first.find('/', 1)), open_local_file), ElementsAre(first));
}

TEST(FindFiles, image_folders_cifar10_and_the_sets_of_a_folder_are_found_through_the_opener) {
  const auto images = folders_of({"mem://box/cats/train/a/1.jpg", "mem://box/cats/train/b/2.png",
                                  "mem://box/cats/train/b/.hidden.png", "mem://box/cats/val/a/3.jpg"});
  const DataSets sets = find_data_sets(*images, "mem://box/cats", false);
  ASSERT_TRUE(sets.training && sets.validation);
  const ImageFolder folder(sets.training->paths.front(), images->opener());
  EXPECT_THAT(folder.classes(), ElementsAre("a", "b"));
  EXPECT_EQ(folder.count(), 2U);
  EXPECT_EQ(folder.left_out(), "1 hidden file");

  std::map<std::string, std::string> cifar;
  for (const std::string name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    cifar["mem://box/cifar-10-batches-bin/" + name + ".bin"] = "\x07" + std::string(kCifar10ImageBytes, 'p');
  }
  const auto files = std::make_shared<MemoryFolders>(cifar);
  const auto found = find_cifar10(*files, "mem://box");
  ASSERT_TRUE(found);
  const Cifar10Images train = open_cifar10_files(found->train, files->opener());
  std::vector<std::byte> pixels(kCifar10ImageBytes);
  EXPECT_EQ(train.count(), 5U);
  EXPECT_EQ(train.read(4, pixels), 7);
}

TEST(Versions, a_file_that_has_changed_between_two_openings_is_named) {
  RecordFiles files;
  const std::string name = files.add(3);
  const RecordSet set(files.names(), open_local_file, {});
  files.add(1);
  std::filesystem::copy_file(files.names().back(), name, std::filesystem::copy_options::overwrite_existing);
  const auto reader = set.make_reader(nullptr);
  StageTimes times;
  EXPECT_THAT(error_of([&] { static_cast<void>(reader->read_sample(0, times)); }),
              HasSubstr(name + " has changed since it was first opened"));
}

TEST(Versions, an_image_that_is_replaced_between_two_epochs_is_named) {
  RecordFiles files;
  const std::string folder = files.path("images");
  std::filesystem::create_directories(folder + "/a");
  std::ofstream(folder + "/a/1.jpg") << "first";
  const ImageFolder set(folder, open_local_file);
  const auto reader = set.make_reader(nullptr);
  StageTimes times;
  static_cast<void>(reader->read_sample(0, times));
  static_cast<void>(reader->read_sample(0, times));
  std::ofstream(folder + "/a/1.jpg") << "another one";
  EXPECT_THAT(error_of([&] { static_cast<void>(reader->read_sample(0, times)); }),
              HasSubstr("images/a/1.jpg has changed since it was first opened"));
}

}  // namespace
}  // namespace gyre::data
