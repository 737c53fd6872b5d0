// A job that printed without end filled its node's disk, and with it those of others.
#include "gyre/jobs/node/internal/log_allowance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace gyre::jobs::node::internal {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class LogAllowanceTest : public testing::Test {
 protected:
  LogAllowanceTest() {
    std::string name = "/tmp/gyre-log-allowance-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~LogAllowanceTest() override { fs::remove_all(folder_); }
  void append(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::app) << text;
  }
  std::string content(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  fs::path folder_;
};

TEST_F(LogAllowanceTest, the_beginnings_of_logs_stay_and_a_line_says_that_the_rest_is_missing) {
  LogAllowance allowance({folder_ / "out", folder_ / "err"}, 1'000);
  append("out", std::string(600, 'o'));
  append("err", "e");
  EXPECT_FALSE(allowance.enforce());
  append("out", std::string(600, 'p'));
  EXPECT_TRUE(allowance.enforce());
  EXPECT_THAT(content("out"), StartsWith(std::string(600, 'o') + std::string(399, 'p') + "\n[gyre: this log is cut"));
  EXPECT_THAT(content("out"), HasSubstr("reached 1000 bytes"));
  EXPECT_THAT(content("out"), EndsWith("the job goes on]\n"));
  EXPECT_EQ(content("err"), "e");
  const std::string cut = content("out");
  for (int i = 0; i < 3; ++i) {
    append("out", "more");
    append("err", "later");
    EXPECT_FALSE(allowance.enforce());
    EXPECT_EQ(content("out"), cut);
    EXPECT_THAT(content("err"), StartsWith("e\n[gyre: this log is cut"));
    EXPECT_THAT(content("err"), EndsWith("the job goes on]\n"));
  }
}

TEST_F(LogAllowanceTest, a_link_or_a_missing_file_is_left_alone) {
  append("target", std::string(5'000, 't'));
  fs::create_symlink(folder_ / "target", folder_ / "link");
  LogAllowance allowance({folder_ / "link", folder_ / "missing"}, 1'000);
  EXPECT_FALSE(allowance.enforce());
  EXPECT_EQ(content("target").size(), 5'000U);
  EXPECT_FALSE(fs::exists(folder_ / "missing"));
}

TEST_F(LogAllowanceTest, without_a_limit_nothing_is_ever_looked_at) {
  LogAllowance allowance({folder_ / "out"}, 0);
  append("out", std::string(5'000, 'o'));
  EXPECT_FALSE(allowance.enforce());
  EXPECT_FALSE(allowance.next().when());
  EXPECT_EQ(content("out").size(), 5'000U);
}

}  // namespace
}  // namespace gyre::jobs::node::internal
