// Batch AI ran job preparation as root. Here a package manager in it fails with messages about locks, after minutes
// perhaps: users must be told before what is missing, and nobody may be told so for nothing.
#include "gyre/jobs/node/internal/needs_root.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyre::jobs::node::internal {
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

// Lines that work for every account were counted.
TEST(NeedsRoot, what_depends_on_the_account_is_left_alone) {
  for (const char* text : {
           "if [ $(id -u) = 0 ]; then apt-get install -y x; fi",
           "if [ \"$(id -u)\" -eq 0 ]\nthen\n  apt-get update\n  apt-get install -y x\nfi",
           "if [[ $EUID -ne 0 ]]; then sudo apt-get install x; else apt-get install x; fi",
           "if [ `id -u` != 0 ]; then true; elif true; then yum install -y x; fi",
           "[ $(id -u) -eq 0 ] && apt-get install x",
           "test \"$(whoami)\" = root &&\n  apt-get install x",
           "[ \"$USER\" = root ] && { apt-get update; apt-get install x; }",
           "(( EUID == 0 )) && apt-get install x",
           "((EUID)) || apt-get install x",
           "[ $UID = 0 ] && apt-get install x || pip install x",
           "case $USER in root) apt-get install x;; esac",
           "case $(id -u) in 0) apt-get install x;; *) pip install x;; esac",
           "if true; then if [ ${EUID} = 0 ]; then dnf install x; fi; fi",
           "bash -c 'if [ $(id -u) = 0 ]; then apt-get install x; fi'",
       }) {
    EXPECT_EQ(found(text), "") << text;
  }
}

TEST(NeedsRoot, a_question_about_the_account_answers_for_its_own_branches_only) {
  for (const char* text : {
           "[ $(id -u) = 0 ] && echo root; apt-get install x",
           "[ $(id -u) = 0 ] && echo root\napt-get install x",
           "if [ $(id -u) = 0 ]; then echo root; fi; apt-get install x",
           "if [ $(id -u) = 0 ]; then if true; then echo; fi; fi\napt-get install x",
           "case $(id -u) in 0) echo;; esac; apt-get install x",
           "[ $(id -u) = 0 ] && { echo; }; apt-get install x",
           "case $1 in a) [ $(id -u) = 0 ] && echo;; b) apt-get install x;; esac",
           "[ $(id -u) = 0 ] &&echo\napt-get install x",
           "if [ -f x ]; then apt-get install x; fi",
           "id; apt-get install x",
           "id -u; apt-get install x",
           "test -n \"$USER\"; apt-get install x",
       }) {
    EXPECT_EQ(found(text), "apt-get") << text;
  }
}

TEST(NeedsRoot, the_lines_of_a_here_document_are_commands_only_for_a_shell) {
  EXPECT_EQ(found("cat > Dockerfile <<EOF\nRUN true\napt-get install x\nEOF\necho"), "");
  EXPECT_EQ(found("cat <<-'END' > notes\n\tapt-get install x\n\tEND\n"), "");
  EXPECT_EQ(found("cat << \"E O\"\napt-get install x\nE O"), "apt-get");  // A delimiter of two words is not followed.
  EXPECT_EQ(found("cat <<EOF > a\napt-get install x\nEOF\nyum install x"), "yum");
  EXPECT_EQ(found("sudo bash <<EOF\napt-get install x\nEOF"), "");
  EXPECT_EQ(found("bash <<EOF\napt-get install x\nEOF"), "apt-get");
  EXPECT_EQ(found("read a <<< x\napt-get install x"), "apt-get");
  EXPECT_EQ(found("echo $((1 << 2))\napt-get install x"), "apt-get");
  EXPECT_EQ(found("cat <<EOF\napt-get install x"), "apt-get");  // It never ends.
}

TEST(NeedsRoot, the_scripts_of_a_line_are_those_that_a_shell_reads) {
  EXPECT_THAT(scripts_of("/mnt/job-prep.sh"), ElementsAre("/mnt/job-prep.sh"));
  EXPECT_THAT(scripts_of("cd x; bash -x prep.sh && . ./more.sh; A=1 bin/own 3"),
              ElementsAre("prep.sh", "./more.sh", "bin/own"));
  EXPECT_THAT(scripts_of("bash -c 'sh /a/b.sh'"), ElementsAre("/a/b.sh"));
  EXPECT_THAT(scripts_of("bash --norc prep.sh"), ElementsAre("prep.sh"));
  EXPECT_THAT(scripts_of("python3 train.py; true; bash"), IsEmpty());
}

// Somebody else's text: nothing of it may end a node program.
TEST(NeedsRoot, any_text_is_read_to_its_end) {
  for (const char* text : {"'",    "\"", "\\",   "bash", "bash -c", "sh -",  "env",           "A=",     "=",
                           "((((", "`",  "\n\n", "#",    "<<",      "<<EOF", "<<<",           "a <<\n", "&&",
                           "|",    "&",  "fi",   "esac", "if",      "case",  "if [ $(id -u)", "fi fi"}) {
    EXPECT_EQ(found(text), "") << text;
    EXPECT_THAT(scripts_of(text), IsEmpty()) << text;
  }
}

}  // namespace
}  // namespace gyre::jobs::node::internal
