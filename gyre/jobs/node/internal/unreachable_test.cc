// A job that fails because its user cannot reach a file must say so, and must not accuse files that are fine.
#include "gyre/jobs/node/internal/unreachable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace gyre::jobs::node::internal {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;

class Unreachable : public testing::Test {
 protected:
  Unreachable() {
    std::string name = "/tmp/gyre-unreachable-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    ::chmod(folder_.c_str(), 0755);
    for (const char* file : {"closed/bin/python", "open/train.py"}) {
      fs::create_directories((folder_ / file).parent_path());
      std::ofstream(folder_ / file) << "x";
    }
    ::chmod((folder_ / "closed").c_str(), 0700);
    variables_ = {{"HERE", folder_.string()}, {"PATH", (folder_ / "closed/bin").string() + ":/usr/bin:/bin"}};
  }
  ~Unreachable() override { fs::remove_all(folder_); }

  fs::path folder_;
  Variables variables_;
  const JobUser user_{{60'000, 60'000, {}}, "nobody"};
};

TEST_F(Unreachable, paths_are_found_in_words_and_in_shell_lines_after_expansion) {
  const auto why = unreachable({"cd /tmp && OUT=x '$HERE/closed/bin/python' train.py"}, variables_, user_);
  EXPECT_THAT(why, Optional(HasSubstr("user 'nobody' cannot enter the folder " + (folder_ / "closed").string())));
  EXPECT_THAT(why, Optional(HasSubstr("--job-user")));
  EXPECT_EQ(unreachable({"python", "$HERE/open/train.py --data=/no/such/file"}, variables_, user_), std::nullopt);
}

// The virtual environment of root, say, whose modules are then not found.
TEST_F(Unreachable, a_program_that_path_has_first_and_the_user_cannot_reach_is_named) {
  EXPECT_THAT(passed_over("python train.py", variables_, user_),
              Optional(HasSubstr("the first 'python' on the PATH was passed over: user 'nobody' cannot enter")));
  EXPECT_EQ(passed_over("sh train.sh", variables_, user_), std::nullopt);
  EXPECT_EQ(passed_over("/bin/sh", variables_, user_), std::nullopt);
}

TEST_F(Unreachable, every_toolkit_names_what_it_starts) {
  const spec::PythonScript python{"train.py", "/opt/python"};
  const auto paths = [](spec::Toolkit toolkit) {
    spec::JobSpec job;
    job.toolkit = std::move(toolkit);
    return program_paths(job);
  };
  EXPECT_THAT(paths(spec::HorovodSettings{python, "", 1}), ElementsAre("/opt/python", "train.py"));
  EXPECT_THAT(paths(spec::CntkSettings{python, "", 1}), ElementsAre("/opt/python", "train.py"));
  EXPECT_THAT(paths(spec::CaffeSettings{spec::ConfigFile{"/net"}, "", 1}), ElementsAre("/net"));
  EXPECT_THAT(paths(spec::CustomMpiSettings{"./a b", 1}), ElementsAre("./a b"));
  EXPECT_THAT(paths(spec::GyreSettings{{"python", "x.py"}, 1, 0}), ElementsAre("python", "x.py"));
}

}  // namespace
}  // namespace gyre::jobs::node::internal
