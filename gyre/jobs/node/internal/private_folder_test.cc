// What one job keeps in a folder of the machine, jobs of other accounts neither read nor replace.
#include "gyre/jobs/node/internal/private_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "gyre/base/acting_as.h"
#include "gyre/base/error.h"

namespace gyre::jobs::node::internal {
namespace {

namespace fs = std::filesystem;

const UserId kAda{.user = 20'001, .group = 20'001, .groups = {}};
const UserId kBob{.user = 20'002, .group = 20'001, .groups = {}};  // Of the same group.

class PrivateFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    std::string pattern = "/tmp/gyre_private_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    ::chmod(root_.c_str(), 01777);
  }
  void TearDown() override {
    if (!root_.empty()) fs::remove_all(root_);
  }

  bool lists(const UserId& user, const fs::path& folder) const {
    const ActingAs acting(user);
    std::error_code failure;
    static_cast<void>(fs::directory_iterator(folder, failure));
    return !failure;
  }
  bool writes(const UserId& user, const fs::path& file) const {
    const ActingAs acting(user);
    return std::ofstream(file) << "x" ? true : false;
  }

  fs::path root_;
};

TEST_F(PrivateFolderTest, it_is_for_its_account_alone_and_goes_with_the_last_node) {
  const fs::path path = root_ / "gyre-a-1";
  PrivateFolder first(path, kAda);
  PrivateFolder second(path, kAda);
  EXPECT_TRUE(writes(kAda, path / "own"));
  EXPECT_FALSE(lists(kBob, path));
  first.leave();
  EXPECT_TRUE(fs::exists(path / "own"));
  second.leave();
  EXPECT_FALSE(fs::exists(path));
  EXPECT_NO_THROW(remove_private_folder(path));
}

TEST_F(PrivateFolderTest, a_name_that_another_account_has_taken_is_an_error_that_names_it) {
  const fs::path taken = root_ / "gyre-a-2";
  {
    const ActingAs acting(kBob);
    fs::create_directory(taken);
  }
  const fs::path link = root_ / "gyre-a-3";
  fs::create_symlink("/etc", link);
  try {
    const PrivateFolder folder(taken, kAda);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("user '20002' has taken the name"), std::string::npos) << error.what();
  }
  EXPECT_THROW(PrivateFolder(link, kAda), Error);
  remove_private_folder(link);
  EXPECT_TRUE(fs::exists("/etc/passwd"));
}

// Whose folder it is can rename and replace all that lies in it.
TEST_F(PrivateFolderTest, a_folder_of_root_with_something_in_it_is_not_given_away) {
  const fs::path path = root_ / "gyre-a-5";
  fs::create_directories(path / "agent");
  EXPECT_THROW(PrivateFolder(path, kAda), Error);
  EXPECT_FALSE(writes(kAda, path / "own"));
}

TEST_F(PrivateFolderTest, links_in_it_lead_its_removal_nowhere) {
  const fs::path victim = root_ / "victim";
  std::ofstream(victim) << "kept";
  const fs::path path = root_ / "gyre-a-4";
  PrivateFolder folder(path, kAda);
  {
    const ActingAs acting(kAda);
    fs::create_symlink(root_, path / "link");
  }
  folder.leave();
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::exists(victim));
}

}  // namespace
}  // namespace gyre::jobs::node::internal
