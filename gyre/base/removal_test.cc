// The folder of a job that another account has filled goes with that account's rights: no link in it, and no file of
// somebody else's, makes root touch anything.
#include "gyre/base/removal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gyre/base/error.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kSomebody = 60'000;

class Removal : public testing::Test {
 protected:
  Removal() {
    std::string name = "/tmp/gyre-removal-XXXXXX";
    place_ = ::mkdtemp(name.data());
    ::chmod(place_.c_str(), 0755);
    folder_ = place_ / "job";
    fs::create_directories(folder_ / "deep/er");
    fs::create_directories(place_ / "other");
    std::ofstream(folder_ / "deep/er/file") << "x";
    std::ofstream(place_ / "other/file") << "x";
    fs::create_directory_symlink(place_ / "other", folder_ / "link");
    give(folder_);
  }
  ~Removal() override { fs::remove_all(place_); }

  static void give(const fs::path& folder) {
    if (::geteuid() != 0) return;
    ASSERT_EQ(::chown(folder.c_str(), kSomebody, kSomebody), 0);
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      ASSERT_EQ(::lchown(entry.path().c_str(), kSomebody, kSomebody), 0);
    }
  }

  fs::path place_;
  fs::path folder_;
};

TEST_F(Removal, a_folder_goes_with_all_in_it_and_nothing_behind_its_links) {
  remove_as_its_owner(folder_);
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_TRUE(fs::exists(place_ / "other/file"));
  remove_as_its_owner(folder_);  // A second time it is not there.
}

// The caches of some package managers are read-only; root never noticed.
TEST_F(Removal, folders_that_their_owner_has_closed_go_too) {
  for (const char* closed : {"deep/er", "deep"}) ::chmod((folder_ / closed).c_str(), 0);
  remove_as_its_owner(folder_);
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(Removal, a_link_itself_goes_and_not_what_it_leads_to) {
  remove_as_its_owner(folder_ / "link");
  EXPECT_TRUE(fs::exists(place_ / "other/file"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder_ / "link")));
}

TEST_F(Removal, what_belongs_to_others_stays_and_is_named) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_EQ(::chown((folder_ / "deep/er").c_str(), 0, 0), 0);
  try {
    remove_as_its_owner(folder_);
    FAIL() << "it was removed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find((folder_ / "deep/er/file").string()), std::string::npos) << error.what();
  }
  EXPECT_TRUE(fs::exists(folder_ / "deep/er/file"));
}

// A job that makes one must not be able to keep its node from taking the next job.
TEST_F(Removal, a_tree_that_is_deeper_than_descriptors_reach_goes_too) {
  int at = ::open(folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  for (int depth = 0; depth < 3'000; ++depth) {
    ASSERT_EQ(::mkdirat(at, "d", 0777), 0);
    if (::geteuid() == 0) {
      ASSERT_EQ(::fchownat(at, "d", kSomebody, kSomebody, 0), 0);
    }
    const int next = ::openat(at, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
    ::close(at);
    at = next;
  }
  ::close(at);
  remove_as_its_owner(folder_);
  EXPECT_FALSE(fs::exists(folder_));
}

}  // namespace
}  // namespace gyre
