// Environments are kept for later jobs in a folder where everybody may write, while jobs of the account come, go and
// are killed: none may be taken for whole that is not, removed under a job, or be somebody else's.
#include "gyre/jobs/node/internal/python_environment.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "gyre/base/error.h"

namespace gyre::jobs::node::internal {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PythonEnvironmentTest : public testing::Test {
 protected:
  PythonEnvironmentTest() {
    std::string name = "/tmp/gyre-environment-XXXXXX";
    top_ = ::mkdtemp(name.data());
    all_ = top_ / "environments";
  }
  ~PythonEnvironmentTest() override { fs::remove_all(top_); }

  /// As a job would make it, `age` ago.
  PythonEnvironment made(const std::string& requirements, int kilobytes, std::chrono::hours age) {
    PythonEnvironment environment(all_, requirements);
    fs::create_directories(environment.folder() / "bin");
    std::ofstream(environment.folder() / "complete") << "/usr/bin/python3 3.11.2\n" << kilobytes << "\n";
    fs::last_write_time(environment.folder() / "complete", fs::file_time_type::clock::now() - age);
    return environment;
  }

  fs::path top_;
  fs::path all_;
};

TEST_F(PythonEnvironmentTest, is_one_for_each_text_and_nobody_elses) {
  const PythonEnvironment one(all_, "numpy\n");
  EXPECT_EQ(PythonEnvironment(all_, "numpy\n").folder(), one.folder());
  EXPECT_NE(PythonEnvironment(all_, "numpy==2\n").folder(), one.folder());
  EXPECT_EQ(fs::status(all_).permissions(), fs::perms::owner_all);
  fs::permissions(all_, fs::perms::all);
  static_cast<void>(PythonEnvironment(all_, "numpy\n"));
  EXPECT_EQ(fs::status(all_).permissions(), fs::perms::owner_all);
}

TEST_F(PythonEnvironmentTest, is_another_where_a_variable_changes_its_packages) {
  const std::string text = "numpy==${NUMPY}\n";
  const auto with = [&](const Variables& variables) { return identity_of(text, variables); };
  EXPECT_EQ(with({}), text);
  EXPECT_EQ(with({{"OTHER", "1"}, {"NUMP", "1"}, {"PIP_TIMEOUT", "5"}, {"PIP_CACHE_DIR", "/x"}}), text);
  EXPECT_EQ(with({{"NUMPY", "1.9"}}), with({{"NUMPY", "1.9"}, {"OTHER", "1"}}));
  EXPECT_NE(with({{"NUMPY", "1.9"}}), with({{"NUMPY", "2.0"}}));
  EXPECT_NE(with({{"NUMPY", "1.9"}}), with({}));
  EXPECT_NE(with({{"PIP_INDEX_URL", "https://user:password@one/simple"}}), with({{"PIP_INDEX_URL", "https://two"}}));
  EXPECT_NE(with({{"PIP_CONSTRAINT", "/a"}, {"PIP_PRE", "1"}}), with({{"PIP_CONSTRAINT", "/a"}}));
  EXPECT_EQ(with({{"PIP_INDEX_URL", "https://user:password@one/simple"}}).find("password"), std::string::npos);
  EXPECT_NE(identity_of("a${X}", {{"X", "1"}}), identity_of("b${X}", {{"X", "1"}}));
}

TEST_F(PythonEnvironmentTest, is_refused_where_others_have_put_something_in_its_place) {
  fs::create_directory(top_ / "theirs");
  fs::create_directory_symlink(top_ / "theirs", all_);
  EXPECT_THROW(PythonEnvironment(all_, "numpy\n"), Error);
  fs::remove(all_);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a folder of somebody else's";
  fs::create_directory(all_);
  ASSERT_EQ(::chown(all_.c_str(), 60'001, 60'001), 0);
  try {
    static_cast<void>(PythonEnvironment(all_, "numpy\n"));
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("is not a folder of account 'root', whose environments belong there"));
  }
}

TEST_F(PythonEnvironmentTest, counts_as_made_only_when_it_is_whole) {
  PythonEnvironment environment(all_, "numpy\n");
  fs::create_directories(environment.folder() / "bin");
  EXPECT_FALSE(environment.is_whole());
  EXPECT_FALSE(environment.hold());
  EXPECT_LT(environment.fd(), 0);
  made("numpy\n", 1, std::chrono::hours(0));
  EXPECT_TRUE(environment.hold());
  EXPECT_GE(environment.fd(), 0);
}

TEST_F(PythonEnvironmentTest, the_longest_unused_go_and_those_that_a_job_has_stay) {
  const PythonEnvironment oldest = made("a\n", 100, std::chrono::hours(3));
  PythonEnvironment held = made("b\n", 100, std::chrono::hours(5));
  const PythonEnvironment newer = made("c\n", 100, std::chrono::hours(1));
  const PythonEnvironment own = made("d\n", 100, std::chrono::hours(9));
  ASSERT_TRUE(held.hold());
  fs::last_write_time(held.folder() / "complete", fs::file_time_type::clock::now() - std::chrono::hours(5));
  PythonEnvironment half(all_, "killed\n");
  fs::create_directories(half.folder() / "bin");
  own.make_room(400 * 1024);
  EXPECT_FALSE(fs::exists(half.folder()));
  EXPECT_TRUE(oldest.is_whole() && held.is_whole() && newer.is_whole() && own.is_whole());
  own.make_room(300 * 1024);
  EXPECT_FALSE(fs::exists(oldest.folder()));
  EXPECT_TRUE(held.is_whole() && newer.is_whole() && own.is_whole());
  own.make_room(0);
  EXPECT_FALSE(fs::exists(newer.folder()));
  EXPECT_TRUE(held.is_whole() && own.is_whole());
}

TEST_F(PythonEnvironmentTest, use_makes_it_the_last_to_go) {
  PythonEnvironment old = made("a\n", 100, std::chrono::hours(3));
  const PythonEnvironment newer = made("b\n", 100, std::chrono::hours(1));
  ASSERT_TRUE(old.hold());
  old = PythonEnvironment(all_, "a\n");  // The job is over.
  PythonEnvironment(all_, "c\n").make_room(150 * 1024);
  EXPECT_TRUE(old.is_whole());
  EXPECT_FALSE(newer.is_whole());
}

TEST_F(PythonEnvironmentTest, comes_first_for_the_processes_of_the_job) {
  const PythonEnvironment environment(all_, "numpy\n");
  Variables variables = {{"PATH", "/usr/bin:/bin"}, {"PYTHONHOME", "/x"}, {"VIRTUAL_ENV", "/other"}};
  environment.enter(variables);
  EXPECT_EQ(variables["PATH"], environment.folder().string() + "/bin:/usr/bin:/bin");
  EXPECT_EQ(variables["VIRTUAL_ENV"], environment.folder().string());
  EXPECT_FALSE(variables.contains("PYTHONHOME"));
}

TEST(words_of_pip, are_its_errors_or_else_what_came_last) {
  EXPECT_EQ(words_of_pip("gyre: makes /x\nCollecting y\nERROR: Could not find a version\n\nERROR: No matching y\n"
                         "[notice] A new release of pip\n"),
            "ERROR: Could not find a version; ERROR: No matching y");
  EXPECT_EQ(words_of_pip("one\ntwo\nthree\r\n\n  four \n"), "two; three;   four");
  EXPECT_EQ(words_of_pip(""), "");
  EXPECT_LT(words_of_pip("ERROR: " + std::string(5'000, 'x')).size(), 400U);
}

}  // namespace
}  // namespace gyre::jobs::node::internal
