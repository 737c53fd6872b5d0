// Checkpoints stand or fall with write_file_atomically: whatever happens, the old file or the new one is there, whole.
#include "gyre/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "gyre/base/error.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = (fs::temp_directory_path() / "gyre-file-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~FileTest() override { fs::remove_all(folder_); }

  std::string content(const fs::path& path) const { return std::string(as_text(read_file(path, 1 << 20))); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  /// How a child ends that runs `work` and may write at most `limit_bytes` into a file.
  static int status_with_file_limit(rlim_t limit_bytes, const std::function<int()>& work) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const rlimit limit{limit_bytes, limit_bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ::_exit(work());
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }

  fs::path folder_;
};

ErrorCode code_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST_F(FileTest, what_was_written_is_read_and_no_temporary_stays) {
  write_file_atomically(folder_ / "a", as_bytes("first"));
  write_file_atomically(folder_ / "a", as_bytes("the second"));
  EXPECT_EQ(content(folder_ / "a"), "the second");
  write_file_atomically(folder_ / "empty", {});
  EXPECT_EQ(content(folder_ / "empty"), "");
  EXPECT_EQ(files(), 2U);
}

TEST_F(FileTest, a_missing_folder_is_an_error_that_names_the_file) {
  const fs::path path = folder_ / "missing" / "a";
  try {
    write_file_atomically(path, as_bytes("x"));
    FAIL() << "wrote into a folder that does not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), testing::HasSubstr(path.string()));
  }
}

TEST_F(FileTest, a_write_that_fails_half_way_leaves_the_old_file_and_no_temporary) {
  write_file_atomically(folder_ / "a", as_bytes("old"));
  const int status = status_with_file_limit(64 << 10, [this] {
    ::signal(SIGXFSZ, SIG_IGN);  // write(2) fails instead, as it does on a full disk.
    const Bytes large(1 << 20);
    return code_of([&] { write_file_atomically(folder_ / "a", large); }) == ErrorCode::kIo ? 42 : 1;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(content(folder_ / "a"), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileTest, a_writer_that_is_killed_half_way_leaves_the_old_file) {
  write_file_atomically(folder_ / "a", as_bytes("old"));
  const int status = status_with_file_limit(64 << 10, [this] {
    ::signal(SIGXFSZ, SIG_DFL);  // Kills the writer in the middle of its file.
    const Bytes large(1 << 20);
    write_file_atomically(folder_ / "a", large);
    return 0;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGXFSZ);
  EXPECT_EQ(content(folder_ / "a"), "old");
  // What the dead one left behind does not disturb the next.
  write_file_atomically(folder_ / "a", as_bytes("new"));
  EXPECT_EQ(content(folder_ / "a"), "new");
}

TEST_F(FileTest, a_folder_in_the_files_place_is_an_error_and_no_temporary_stays) {
  fs::create_directory(folder_ / "a");
  EXPECT_EQ(code_of([&] { write_file_atomically(folder_ / "a", as_bytes("x")); }), ErrorCode::kIo);
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileTest, a_full_disk_is_called_that) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(static_cast<bool>(full));
  EXPECT_EQ(code_of([&] { write_all(full.get(), as_bytes("x"), "cannot write a"); }), ErrorCode::kResourceExhausted);
}

TEST_F(FileTest, reading_respects_the_limit_for_files_and_for_endless_devices) {
  write_file_atomically(folder_ / "a", as_bytes("12345"));
  EXPECT_EQ(read_file(folder_ / "a", 5).size(), 5U);
  EXPECT_EQ(code_of([&] { read_file(folder_ / "a", 4); }), ErrorCode::kResourceExhausted);
  EXPECT_EQ(code_of([&] { read_file("/dev/zero", 3 << 20); }), ErrorCode::kResourceExhausted);
  EXPECT_EQ(code_of([&] { read_file(folder_ / "none", 4); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { read_file(folder_, 4096); }), ErrorCode::kIo);
}

TEST_F(FileTest, files_that_do_not_know_their_size_are_read_to_the_end) {
  EXPECT_GT(read_file("/proc/self/status", 1 << 20).size(), 100U);
}

TEST(unique_fd, closes_once_and_moves) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  UniqueFd first(ends[1]);
  UniqueFd second = std::move(first);
  EXPECT_FALSE(static_cast<bool>(first));  // NOLINT(bugprone-use-after-move): a moved-from UniqueFd is empty.
  EXPECT_EQ(::fcntl(second.get(), F_GETFD), FD_CLOEXEC);
  second = UniqueFd();
  char byte = 0;
  EXPECT_EQ(::read(read_end.get(), &byte, 1), 0) << "the write end is still open";
}

}  // namespace
}  // namespace gyre
