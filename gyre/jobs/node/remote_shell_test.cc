// mpirun, gyre run and scripts call `ssh` with all kinds of options; what they want done must come out of it.
#include "gyre/jobs/node/remote_shell.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "gyre/jobs/node/internal/waiting_launcher.h"

#include "gyre/base/error.h"

namespace gyre::jobs::node {
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

// `ssh` on the job's PATH is ours, and became itself again for ever where the job had put a folder in front of ours.
TEST(RemoteShell, other_hosts_are_reached_by_the_real_ssh_wherever_ours_stands_on_the_path) {
  std::string name = "/tmp/gyre-shell-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name.data());
  for (const auto& [where, code] : {std::pair("own", 8), std::pair("real", 7), std::pair("empty", 0)}) {
    std::filesystem::create_directories(folder / where);
    if (code == 0) continue;
    std::ofstream(folder / where / "ssh") << "#!/bin/sh\nexit " << code << "\n";
    std::filesystem::permissions(folder / where / "ssh", std::filesystem::perms::owner_all);
  }
  ShellTable table;
  table.key = std::string(64, '0');
  std::ofstream(folder / "shells.json") << to_json(table).dump();
  for (const char* order : {"own real", "empty own real", "empty own own real own"}) {
    std::string path;
    std::istringstream words(order);
    for (std::string word; words >> word;) path += (path.empty() ? "" : ":") + (folder / word).string();
    const pid_t child = ::fork();
    if (child == 0) {
      run_remote_shell({"elsewhere", "true"}, folder / "shells.json",
                       {"PATH=" + path, fmt::format("{}={}", kRemoteShellVariable, (folder / "own/ssh").string())});
      ::_exit(9);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 7) << order;
  }
  std::filesystem::remove_all(folder);
}

// Open MPI takes 127.0.0.2 for another machine, although it is the only node of its job.
TEST(RemoteShell, a_jobs_only_node_runs_its_commands_without_a_server) {
  std::string name = "/tmp/gyre-shell-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name.data());
  ShellTable table;
  table.key = std::string(64, '0');
  table.ports["127.0.0.2"] = 0;
  table.numbers["127.0.0.2"] = 0;
  table.addresses["node-0"] = "127.0.0.2";
  std::ofstream(folder / "shells.json") << to_json(table).dump();
  const auto run = [&](const std::vector<std::string>& arguments) {
    return run_remote_shell(arguments, folder / "shells.json",
                            {"PATH=/usr/bin:/bin", "HOME=" + folder.string(), "WORD=hello"});
  };
  EXPECT_EQ(run({"-n", "127.0.0.2", "echo", "$WORD", ">", "said;", "pwd", ">>", "said;", "exit", "3"}), 3);
  std::ifstream said(folder / "said");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(said), {}), "hello\n" + folder.string() + "\n");
  EXPECT_EQ(run({"-n", "node-0", "kill -9 $$"}), 128 + SIGKILL);
  std::filesystem::remove_all(folder);
}

// The folder is the job's user's, and the node program, which reads the note, may be root.
TEST(RemoteShell, a_note_about_a_failure_is_read_where_it_is_a_plain_file_of_the_jobs_user) {
  std::string name = "/tmp/gyre-note-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name.data());
  const std::filesystem::path note = folder / kFailureNote;
  EXPECT_EQ(internal::text_noted(note, ::geteuid()), "");
  std::ofstream(folder / "other") << "hidden";
  std::filesystem::create_symlink(folder / "other", note);
  EXPECT_EQ(internal::text_noted(note, ::geteuid()), "");
  std::filesystem::remove(note);
  std::ofstream(note) << "node-1\x1b[2J " << std::string(5'000, 'x');
  EXPECT_EQ(internal::text_noted(note, ::geteuid()).substr(0, 14), "node-1\\x1b[2J ");
  EXPECT_LE(internal::text_noted(note, ::geteuid()).size(), 1'100U);
  EXPECT_EQ(internal::text_noted(note, ::geteuid() + 1), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gyre::jobs::node
