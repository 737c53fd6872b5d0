// Batch AI ran job preparation as root. Here a package manager in it fails with messages about locks, after minutes
// perhaps: users must be told before what is missing, and nobody may be told so for nothing.
#include "gyre/jobs/agent/internal/needs_root.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyre::jobs::agent::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string found(std::string_view text) { return package_manager_for_root(text).value_or(""); }

// Lines of Batch AI's own recipes.
TEST(NeedsRoot, package_managers_of_recipes_are_found) {
  EXPECT_EQ(found("apt update; apt install mpi-default-dev mpi-default-bin -y; pip install horovod"), "apt");
  EXPECT_EQ(found("apt-get update && apt-get install -y --no-install-recommends libdapl2"), "apt-get");
  EXPECT_EQ(found("echo y | DEBIAN_FRONTEND=noninteractive apt-get -yq install cpio"), "apt-get");
}

TEST(NeedsRoot, they_are_found_wherever_a_command_may_stand) {
  EXPECT_EQ(found("bash -c 'cd /tmp && /usr/bin/apt-get install -y x'"), "apt-get");
  EXPECT_EQ(found("bash -lc \"yum -y install x\""), "yum");
  EXPECT_EQ(found("if ! command -v mpirun; then dnf install -y openmpi; fi"), "dnf");
  EXPECT_EQ(found("x=$(apk add curl)"), "apk");
  EXPECT_EQ(found("set -e\n# packages\nexec env A=1 zypper in gcc\n"), "zypper");
  EXPECT_EQ(found("wget x.deb\ndpkg -i x.deb"), "dpkg");
  EXPECT_EQ(found("apt-get \\\n  install x"), "apt-get");
  EXPECT_EQ(found("add-apt-repository ppa:x/y"), "add-apt-repository");
}

TEST(NeedsRoot, what_works_without_root_is_left_alone) {
  for (const char* line :
       {"sudo apt-get install -y x", "sudo -n apt install x", "apt list --installed", "apt-get -s install x",
        "apt-cache policy x", "dpkg -l | grep mpi", "apt-get download x", "pip install horovod", "conda install x",
        "echo apt-get install x", "echo 'run apt-get install x'", "# apt-get install x", "./install", "rpm -qa", ""}) {
    EXPECT_EQ(found(line), "") << line;
  }
}

TEST(NeedsRoot, the_scripts_of_a_line_are_those_that_a_shell_reads) {
  EXPECT_THAT(scripts_of("/mnt/job-prep.sh"), ElementsAre("/mnt/job-prep.sh"));
  EXPECT_THAT(scripts_of("cd x; bash -x prep.sh && . ./more.sh; A=1 bin/own 3"),
              ElementsAre("prep.sh", "./more.sh", "bin/own"));
  EXPECT_THAT(scripts_of("bash -c 'sh /a/b.sh'"), ElementsAre("/a/b.sh"));
  EXPECT_THAT(scripts_of("bash --norc prep.sh"), ElementsAre("prep.sh"));
  EXPECT_THAT(scripts_of("python3 train.py; true; bash"), IsEmpty());
}

// Somebody else's text: nothing of it may end an agent.
TEST(NeedsRoot, any_text_is_read_to_its_end) {
  for (const char* text : {"'", "\"", "\\", "bash", "bash -c", "sh -", "env", "A=", "=", "((((", "`", "\n\n", "#"}) {
    EXPECT_EQ(found(text), "") << text;
    EXPECT_THAT(scripts_of(text), IsEmpty()) << text;
  }
}

}  // namespace
}  // namespace gyre::jobs::agent::internal
