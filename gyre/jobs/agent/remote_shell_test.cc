// mpirun, gyre run and scripts call `ssh` with all kinds of options; what they want done must come out of it.
#include "gyre/jobs/agent/remote_shell.h"

#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::jobs::agent {
namespace {

TEST(RemoteShell, a_host_and_a_command_are_taken_as_ssh_takes_them) {
  const ShellRequest request = parse_ssh_arguments({"node-1", "echo", "a  b", "&&", "ls"});
  EXPECT_EQ(request.host, "node-1");
  EXPECT_EQ(request.command, "echo a  b && ls");
  EXPECT_FALSE(request.without_stdin);
}

TEST(RemoteShell, options_of_ssh_are_skipped_with_their_values) {
  const ShellRequest request = parse_ssh_arguments({"-T", "-o", "BatchMode=yes", "-oConnectTimeout=5", "-p22", "-xq",
                                                    "-i", "key", "-nl", "me", "user@10.0.0.5", "-x", "y"});
  EXPECT_EQ(request.host, "10.0.0.5");
  EXPECT_EQ(request.command, "-x y");
  EXPECT_TRUE(request.without_stdin);
}

TEST(RemoteShell, without_a_host_it_says_how_it_is_used) {
  EXPECT_THROW(parse_ssh_arguments({"-o", "BatchMode=yes"}), Error);
  EXPECT_THROW(parse_ssh_arguments({}), Error);
}

}  // namespace
}  // namespace gyre::jobs::agent
