// The launcher's and the agents' promise that nothing leaks into a child and nothing of it is left rests on Process.
#include "gyre/base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gyre/base/bytes.h"
#include "gyre/base/file.h"
#include "gyre/base/thread.h"

namespace gyre {
namespace {

using std::chrono::seconds;

SpawnOptions shell(const std::string& script) {
  SpawnOptions options;
  options.argv = {"sh", "-c", script};
  options.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  return options;
}

ExitStatus end_of(const Process& process) {
  const auto status = process.wait(Deadline::after(seconds(20)));
  EXPECT_TRUE(status.has_value()) << "still running";
  return status.value_or(ExitStatus{});
}

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end = UniqueFd(ends[0]);
    write_end = UniqueFd(ends[1]);
  }
  std::string read_all() {
    write_end.reset();
    std::string text;
    char buffer[4096];
    for (ssize_t count = 0; (count = ::read(read_end.get(), buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(count));
    }
    return text;
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

std::string output_of(SpawnOptions options) {
  Pipe pipe;
  options.stdout_fd = pipe.write_end.get();
  const Process process = Process::spawn(options);
  std::string text = pipe.read_all();
  end_of(process);
  return text;
}

int spawn_errno(const SpawnOptions& options) {
  try {
    const Process process = Process::spawn(options);
  } catch (const SpawnError& error) {
    return error.errno_value();
  }
  return 0;
}

TEST(process, exit_codes_and_signals_are_told_apart) {
  const Process exits = Process::spawn(shell("exit 3"));
  EXPECT_EQ(end_of(exits), (ExitStatus{.code = 3, .signal = 0}));
  const Process dies = Process::spawn(shell("kill -SEGV $$"));
  EXPECT_EQ(end_of(dies), (ExitStatus{.code = 0, .signal = SIGSEGV}));
  EXPECT_EQ(end_of(dies).shell_code(), 128 + SIGSEGV);
  EXPECT_FALSE(end_of(dies).success());
}

TEST(process, signals_have_their_names) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(99), "signal 99");
}

TEST(process, a_child_has_the_given_environment_and_no_other) {
  ::setenv("GYRE_PROCESS_TEST", "leaks", 1);
  SpawnOptions options = shell("/usr/bin/env");
  options.environment.emplace_back("COLOUR=blue");
  const std::string text = output_of(options);
  ::unsetenv("GYRE_PROCESS_TEST");
  EXPECT_THAT(text, testing::HasSubstr("COLOUR=blue\n"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("GYRE_PROCESS_TEST")));
}

TEST(process, only_the_named_descriptors_are_inherited) {
  const UniqueFd secret(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd shared(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::string probe = "[ -e /dev/fd/" + std::to_string(secret.get()) + " ] && echo secret; [ -e /dev/fd/" +
                            std::to_string(shared.get()) + " ] && echo shared";
  SpawnOptions options = shell(probe);
  options.inherited_fds = {shared.get()};
  EXPECT_EQ(output_of(options), "shared\n");
  EXPECT_EQ(::fcntl(shared.get(), F_GETFD), FD_CLOEXEC) << "the parent's own flag was changed";
}

TEST(process, stdin_is_empty) { EXPECT_EQ(output_of(shell("wc -c")), "0\n"); }

// A remote shell hands on what it is sent.
TEST(process, stdin_is_the_descriptor_that_was_given) {
  Pipe pipe;
  write_all(pipe.write_end.get(), as_bytes("sent"), "a pipe");
  pipe.write_end.reset();
  SpawnOptions options = shell("cat");
  options.stdin_fd = pipe.read_end.get();
  EXPECT_EQ(output_of(std::move(options)), "sent");
}

TEST(process, a_child_starts_without_blocked_signals) {
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  const Process process = Process::spawn(shell("kill -TERM $$; exit 0"));
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(end_of(process).signal, SIGTERM);
}

TEST(process, a_child_of_one_of_our_threads_starts_without_blocked_signals) {
  std::string blocked;
  start_thread("a test", [&] { blocked = output_of(shell("grep SigBlk /proc/self/status")); }).join();
  EXPECT_EQ(blocked, "SigBlk:\t0000000000000000\n");
}

TEST(process, a_group_is_signalled_as_a_whole_even_after_its_leader_has_ended) {
  Pipe pipe;
  SpawnOptions options = shell("sleep 1000 & exit 0");
  options.stdout_fd = pipe.write_end.get();
  options.own_process_group = true;
  const Process process = Process::spawn(options);
  EXPECT_TRUE(end_of(process).success());
  process.signal(SIGKILL);
  EXPECT_EQ(pipe.read_all(), "");  // Returns only when the sleeping one has let go of the pipe.
}

TEST(process, the_destructor_leaves_nothing_behind) {
  Pipe pipe;
  {
    SpawnOptions options = shell("sleep 1000 & sleep 1000");
    options.stdout_fd = pipe.write_end.get();
    options.own_process_group = true;
    const Process process = Process::spawn(options);
    EXPECT_EQ(process.exit_status(), std::nullopt);
  }
  EXPECT_EQ(pipe.read_all(), "");
}

TEST(process, a_wait_ends_at_its_deadline) {
  const Process process = Process::spawn(shell("exec sleep 1000"));
  EXPECT_EQ(process.wait(Deadline::after(std::chrono::milliseconds(20))), std::nullopt);
}

TEST(process, a_missing_command_is_told_from_one_that_cannot_run) {
  SpawnOptions options = shell("");
  options.argv = {"no-such-command-of-gyre"};
  EXPECT_EQ(spawn_errno(options), ENOENT);
  options.argv = {"/no/such/file"};
  EXPECT_EQ(spawn_errno(options), ENOENT);
  options.argv = {"/etc/passwd"};
  EXPECT_EQ(spawn_errno(options), EACCES);
  options.argv = {"/tmp"};
  EXPECT_EQ(spawn_errno(options), EISDIR);
}

TEST(process, a_script_whose_interpreter_is_missing_is_not_called_missing) {
  std::string pattern = (std::filesystem::temp_directory_path() / "gyre-process-test-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  const std::filesystem::path script = folder / "script";
  write_file_atomically(script, as_bytes("#!/no/such/interpreter\n"));
  ::chmod(script.c_str(), 0755);
  SpawnOptions options = shell("");
  options.argv = {script.string()};
  EXPECT_EQ(spawn_errno(options), ENOEXEC);
  // Found through PATH, but not executable: that is the reason to give, not "not found".
  ::chmod(script.c_str(), 0644);
  EXPECT_THROW(find_command("script", "/nowhere:" + folder.string()), SpawnError);
  options.argv = {"script"};
  options.environment = {"PATH=/nowhere:" + folder.string()};
  EXPECT_EQ(spawn_errno(options), EACCES);
  std::filesystem::remove_all(folder);
}

/// What find_command() says of "gyre-test-program" to a user who is not root.
std::string search_of_nobody(const std::string& path_variable) {
  Pipe pipe;
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65'534;
    if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(1);
    std::string said;
    try {
      said = find_command("gyre-test-program", path_variable);
    } catch (const SpawnError& error) {
      said = fmt::format("{} {} [{}]", error.errno_value() == ENOENT ? "ENOENT" : "EACCES", error.what(), error.file());
    }
    [[maybe_unused]] const ssize_t ignored = ::write(pipe.write_end.get(), said.data(), said.size());
    ::_exit(0);
  }
  std::string said = pipe.read_all();
  ::waitpid(child, nullptr, 0);
  return said;
}

// The advice was to `chmod +x` a program that nobody has: each job of root's server has root's folders on its PATH.
TEST(process, a_folder_of_path_that_is_closed_makes_no_file_of_a_misspelt_name) {
  std::string pattern = (std::filesystem::temp_directory_path() / "gyre-process-test-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  ::chmod(folder.c_str(), 0755);
  const std::string closed = (folder / "closed").string();
  const std::string inside = closed + "/bin";
  const std::string open = (folder / "open").string();
  std::filesystem::create_directories(inside);
  std::filesystem::create_directory(open);
  ::chmod(closed.c_str(), 0);
  const std::string path = inside + ":" + closed + ":" + inside + ":/nowhere:" + open;
  std::string said = search_of_nobody(path);
  EXPECT_THAT(said, testing::StartsWith("ENOENT cannot start 'gyre-test-program': command not found in any folder of "
                                        "PATH; user '"));
  EXPECT_THAT(said, testing::EndsWith("' cannot look into " + inside + ", " + closed + " []"));
  // One that is there and must not be run is another matter, also where a link leads to where nobody may go.
  const std::string file = open + "/gyre-test-program";
  write_file_atomically(file, as_bytes("#!/bin/sh\n"));
  ::chmod(file.c_str(), 0644);
  EXPECT_EQ(search_of_nobody(path), "EACCES cannot start 'gyre-test-program': Permission denied [" + file + "]");
  std::filesystem::remove(file);
  std::filesystem::create_symlink(inside + "/python", file);
  EXPECT_THAT(search_of_nobody(path), testing::StartsWith("EACCES"));
  ::chmod(closed.c_str(), 0700);
  std::filesystem::remove_all(folder);
}

/// Why a child could not be started.
std::string refusal_of(const SpawnOptions& options) {
  try {
    Process::spawn(options).signal(SIGKILL);
    return "it was started";
  } catch (const SpawnError& error) {
    return error.what();
  }
}

TEST(process, a_child_runs_in_its_folder_as_its_user_and_in_its_cgroup) {
  SpawnOptions options = shell("pwd");
  options.folder = "/usr";
  EXPECT_EQ(output_of(options), "/usr\n");
  options.argv = {"bin/env", "true"};
  EXPECT_EQ(output_of(options), "");
  options.folder = "/no/such/folder";
  options.argv = {"sh"};
  EXPECT_THAT(refusal_of(options), testing::HasSubstr("it cannot enter the folder /no/such/folder"));

  options = shell("id -u; id -g; id -G");
  options.cgroups = {"/no/such/cgroup"};
  EXPECT_THAT(refusal_of(options), testing::HasSubstr("/no/such/cgroup is not a cgroup that it can enter"));
  options.cgroups.clear();
  options.user = UserId{.user = 65'534, .group = 65'533, .groups = {65'532}};
  if (::geteuid() != 0) {
    EXPECT_THAT(refusal_of(options), testing::HasSubstr("it cannot run as user 65534"));
  } else {
    EXPECT_EQ(output_of(options), "65534\n65533\n65533 65532\n");
  }
}

TEST(process, a_child_dies_with_its_parent_when_asked_to) {
  Pipe pipe;
  const pid_t parent = ::fork();
  if (parent == 0) {
    SpawnOptions options = shell("exec sleep 1000");
    options.stdout_fd = pipe.write_end.get();
    options.parent_death_signal = SIGKILL;
    const Process process = Process::spawn(options);
    ::_exit(0);
  }
  EXPECT_EQ(pipe.read_all(), "");
  ::waitpid(parent, nullptr, 0);
}

}  // namespace
}  // namespace gyre
