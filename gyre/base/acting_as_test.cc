#include "gyre/base/acting_as.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "gyre/base/file.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

const UserId kSomebody{60'001, 60'002, {60'003}};

class ActingAsTest : public testing::Test {
 protected:
  ActingAsTest() {
    std::string name = "/tmp/gyre-acting-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    fs::permissions(folder_, fs::perms::all);
  }
  ~ActingAsTest() override { fs::remove_all(folder_); }

  UniqueFd made(const char* name) const {
    return UniqueFd(::open((folder_ / name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  }
  struct stat status_of(const char* name) const {
    struct stat status{};
    EXPECT_EQ(::lstat((folder_ / name).c_str(), &status), 0);
    return status;
  }

  fs::path folder_;
};

TEST_F(ActingAsTest, files_are_made_and_refused_as_the_users_and_roots_rights_come_back) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as others";
  ASSERT_TRUE(made("roots"));
  {
    const ActingAs user(kSomebody);
    ASSERT_TRUE(made("users"));
    EXPECT_FALSE(UniqueFd(::open((folder_ / "roots").c_str(), O_RDONLY | O_CLOEXEC)));
    EXPECT_EQ(errno, EACCES);
    EXPECT_NE(::chown((folder_ / "users").c_str(), 0, 0), 0) << "the right to give files away is root's";
  }
  EXPECT_EQ(status_of("users").st_uid, kSomebody.user);
  EXPECT_EQ(status_of("users").st_gid, kSomebody.group);
  EXPECT_TRUE(UniqueFd(::open((folder_ / "users").c_str(), O_RDONLY | O_CLOEXEC))) << "root again";
  ASSERT_TRUE(made("roots too"));
  EXPECT_EQ(status_of("roots too").st_uid, 0U);
}

TEST_F(ActingAsTest, other_threads_keep_their_rights) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as others";
  std::promise<void> acting;
  std::thread other([&] {
    acting.get_future().wait();
    EXPECT_TRUE(made("of another thread"));
  });
  {
    const ActingAs user(kSomebody);
    acting.set_value();
    other.join();
  }
  EXPECT_EQ(status_of("of another thread").st_uid, 0U);
}

TEST_F(ActingAsTest, acting_as_oneself_changes_nothing) {
  const ActingAs self(UserId{::geteuid(), ::getegid(), {}});
  ASSERT_TRUE(made("own"));
  EXPECT_EQ(status_of("own").st_uid, ::geteuid());
}

}  // namespace
}  // namespace gyre
