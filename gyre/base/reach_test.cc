// "Permission denied" alone sends people to chmod the wrong file; what is in the way has to be found and named.
#include "gyre/base/reach.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

namespace gyre {
namespace {

namespace fs = std::filesystem;

class Reach : public testing::Test {
 protected:
  Reach() {
    std::string name = "/tmp/gyre-reach-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    ::chmod(folder_.c_str(), 0755);
    fs::create_directories(folder_ / "closed/inner");
    std::ofstream(folder_ / "closed/inner/train.py") << "pass\n";
    ::chmod((folder_ / "closed").c_str(), 0700);
  }
  ~Reach() override { fs::remove_all(folder_); }

  fs::path folder_;
  const UserId stranger_{60'000, 60'000, {}};
};

TEST_F(Reach, the_first_folder_that_is_closed_is_named_with_its_user) {
  const fs::path script = folder_ / "closed/inner/train.py";
  const auto obstacle = obstacle_before(script, stranger_);
  ASSERT_TRUE(obstacle);
  EXPECT_EQ(obstacle->place, folder_ / "closed");
  EXPECT_EQ(
      explain(*obstacle, script, "nobody"),
      "user 'nobody' cannot enter the folder " + (folder_ / "closed").string() + ", on the way to " + script.string());
  EXPECT_FALSE(obstacle_before(script, own_user()));
}

// A virtual environment's python is a link to one that lies elsewhere.
TEST_F(Reach, links_are_followed_to_what_they_lead_to) {
  fs::create_symlink("closed/inner/train.py", folder_ / "link");
  const auto obstacle = obstacle_before(folder_ / "link", stranger_);
  ASSERT_TRUE(obstacle);
  EXPECT_EQ(obstacle->place, folder_ / "closed");
  fs::create_symlink("round", folder_ / "round");
  EXPECT_FALSE(obstacle_before(folder_ / "round", stranger_));
}

TEST_F(Reach, a_file_that_cannot_be_read_is_named_itself) {
  std::ofstream(folder_ / "secret.py") << "pass\n";
  ::chmod((folder_ / "secret.py").c_str(), 0640);
  const auto obstacle = obstacle_before(folder_ / "secret.py", stranger_);
  ASSERT_TRUE(obstacle);
  EXPECT_EQ(explain(*obstacle, folder_ / "secret.py", "nobody"),
            "user 'nobody' cannot read " + (folder_ / "secret.py").string());
  UserId member = stranger_;
  member.groups = {::getegid()};
  EXPECT_FALSE(obstacle_before(folder_ / "secret.py", member));
}

TEST_F(Reach, what_is_free_or_missing_is_no_obstacle) {
  EXPECT_FALSE(obstacle_before("/bin/sh", stranger_));
  EXPECT_FALSE(obstacle_before(folder_ / "none/at/all", stranger_));
}

}  // namespace
}  // namespace gyre
