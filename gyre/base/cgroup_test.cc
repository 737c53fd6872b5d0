// Limits of cores and memory are the kernel's files: what is written there, and read from there, in both versions of
// cgroups. Where this machine lets us make cgroups, a process is limited by one.

#include "gyre/base/cgroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "gyre/base/error.h"
#include "gyre/base/process.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

/// A folder with files as a cgroup has them.
class Files {
 public:
  Files() : folder(fs::temp_directory_path() / ("gyre-cgroup-test-" + std::to_string(::getpid()))) {
    fs::create_directories(folder / "inner");
  }
  ~Files() { fs::remove_all(folder); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  void write(const fs::path& name, const std::string& text) const { std::ofstream(folder / name) << text; }

  const fs::path folder;
};

TEST(cgroup, the_narrowest_limit_of_memory_counts) {
  const Files files;
  const std::vector<fs::path> both = {files.folder / "inner", files.folder};
  EXPECT_EQ(memory_limit(both), std::nullopt);
  files.write("inner/memory.max", "max\n");
  files.write("memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_limit(both), std::nullopt);
  files.write("memory.limit_in_bytes", "67108864\n");
  EXPECT_EQ(memory_limit(both), 67'108'864);
  files.write("inner/memory.max", "1048576\n");
  EXPECT_EQ(memory_limit(both), 1'048'576);
}

TEST(cgroup, a_limit_of_cores_is_rounded_up) {
  const Files files;
  const std::vector<fs::path> both = {files.folder / "inner", files.folder};
  files.write("inner/cpu.max", "max 100000\n");
  files.write("cpu.cfs_quota_us", "-1\n");
  files.write("cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(core_limit(both), std::nullopt);
  files.write("cpu.cfs_quota_us", "350000\n");
  EXPECT_EQ(core_limit(both), 4);
  files.write("inner/cpu.max", "50000 100000\n");
  EXPECT_EQ(core_limit(both), 1);
}

TEST(cgroup, the_kernels_kills_are_counted) {
  const Files files;
  EXPECT_EQ(memory_kills(files.folder), 0);
  files.write("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(memory_kills(files.folder), 2);
  files.write("memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n");
  EXPECT_EQ(memory_kills(files.folder), 1);
}

TEST(cgroup, a_process_that_needs_more_than_its_memory_is_killed_and_counted) {
  constexpr std::uint64_t kLimit = std::uint64_t{16} << 20;
  fs::path cgroup;
  try {
    cgroup = make_cgroup(CgroupController::kMemory, "gyre-test-" + std::to_string(::getpid()), kLimit);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);  // Not root, or a container without cgroups.
    return;
  }
  EXPECT_EQ(make_cgroup(CgroupController::kMemory, cgroup.filename(), kLimit), cgroup);
  EXPECT_EQ(memory_limit({cgroup}), kLimit);
  SpawnOptions options;
  options.argv = {"sh", "-c", "tr '\\0' x < /dev/zero | head -c 200000000 | sort"};
  options.environment = {"PATH=/usr/bin:/bin", "TMPDIR=/dev/shm"};
  options.cgroups = {cgroup};
  const Process process = Process::spawn(options);
  const auto status = process.wait(Deadline::after(std::chrono::seconds(30)));
  ASSERT_TRUE(status);
  EXPECT_FALSE(status->success());
  EXPECT_GE(memory_kills(cgroup), 1);
  remove_cgroup(cgroup, Deadline::after(std::chrono::seconds(10)));
  EXPECT_FALSE(fs::exists(cgroup));
}

}  // namespace
}  // namespace gyre
