// Two runs in one folder replaced each other's checkpoints, and both ended with success.
#include "workloads/training/run_lock.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>

#include "gyre/base/error.h"
#include "gyre/group/topology.h"

namespace gyre::training {
namespace {

namespace fs = std::filesystem;

class RunLockTest : public testing::Test {
 protected:
  RunLockTest() {
    std::string pattern = (fs::temp_directory_path() / "gyre-run-lock-test-XXXXXX").string();
    folder_ = fs::path(::mkdtemp(pattern.data())) / "run";
  }
  ~RunLockTest() override { fs::remove_all(folder_.parent_path()); }

  fs::path folder_;
};

TEST_F(RunLockTest, a_second_run_is_refused_with_the_folder_the_host_and_the_process) {
  const RunLock lock(folder_, "--output-dir");
  EXPECT_EQ(lock.remark(), "");
  try {
    const RunLock second(folder_, "--output-dir");
    FAIL() << "two runs have one folder";
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()),
        fmt::format("{} is in use by another run (process {} on {}): wait until that has ended, or choose another "
                    "folder with --output-dir",
                    folder_.string(), ::getpid(), group::this_host_name()));
  }
  EXPECT_TRUE(fs::exists(folder_ / "run.lock")) << "the refused run has removed the other one's lock";
}

TEST_F(RunLockTest, a_run_that_has_ended_leaves_nothing) {
  {
    const RunLock lock(folder_, "--output-dir");
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  const RunLock next(folder_, "--output-dir");
}

TEST_F(RunLockTest, the_lock_of_a_killed_process_is_gone) {
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(folder_, "--output-dir");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_TRUE(fs::exists(folder_ / "run.lock"));
  const RunLock next(folder_, "--output-dir");
  EXPECT_EQ(next.remark(), "");
}

TEST_F(RunLockTest, a_holder_that_is_just_ending_is_waited_for) {
  // Whoever restarts a job at once would be refused because of a rank that is about to be killed.
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(folder_, "--output-dir");
    if (::write(ready[1], "1", 1) != 1) ::_exit(1);
    ::usleep(300'000);
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const RunLock next(folder_, "--output-dir");
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(LocalLocks, are_those_of_fuse_and_of_mounts_that_say_so) {
  constexpr std::string_view kMounts =
      "36 35 98:0 / /mnt/disk rw,noatime master:1 - ext4 /dev/root rw,errors=continue\n"
      "37 35 0:41 / /mnt/shared rw shared:2 - nfs4 server:/a rw,vers=4.2,local_lock=none,addr=10.0.0.1\n"
      "38 35 0:42 / /mnt/old rw - nfs server:/b rw,vers=3,nolock,local_lock=all,addr=10.0.0.1\n"
      "39 35 0:43 / /mnt/blobs rw - fuse.blobfuse2 blobfuse2 rw,user_id=0\n"
      "40 35 0:44 / /mnt/smb rw - cifs //server/share rw,vers=3.1.1,nobrl\n"
      "41 35 0:45 / /mnt/smb2 rw - cifs //server/share rw,vers=3.1.1\n";
  EXPECT_EQ(type_with_local_locks(kMounts, 98, 0), std::nullopt);
  EXPECT_EQ(type_with_local_locks(kMounts, 0, 41), std::nullopt);
  EXPECT_EQ(type_with_local_locks(kMounts, 0, 42), "nfs");
  EXPECT_EQ(type_with_local_locks(kMounts, 0, 43), "fuse.blobfuse2");
  EXPECT_EQ(type_with_local_locks(kMounts, 0, 44), "cifs");
  EXPECT_EQ(type_with_local_locks(kMounts, 0, 45), std::nullopt);
  EXPECT_EQ(type_with_local_locks(kMounts, 7, 7), std::nullopt);
  EXPECT_EQ(type_with_local_locks("", 0, 0), std::nullopt);
}

}  // namespace
}  // namespace gyre::training
