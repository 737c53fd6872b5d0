// Ranks of a launcher that gave them numbers only find each other by its process; a wrong one means waiting in vain.
#include "gyre/group/internal/launcher_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>

#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/base/process_stat.h"

namespace gyre::group {
namespace {

/// A shell with these variables, and the program that it has started.
class ShellWithChild {
 public:
  explicit ShellWithChild(const std::string& rank) : shell_(start(rank)) {
    std::array<char, 32> text{};
    [[maybe_unused]] const ssize_t count = ::read(read_.get(), text.data(), text.size() - 1);
    child_ = std::atoi(text.data());
  }
  ~ShellWithChild() { shell_.signal(SIGKILL); }

  pid_t child() const { return child_; }

 private:
  Process start(const std::string& rank) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read_ = UniqueFd(ends[0]);
    const UniqueFd write(ends[1]);
    SpawnOptions options;
    options.argv = {"sh", "-c", "sleep 1000 & echo $!; wait"};
    options.environment = {"PATH=/usr/bin:/bin", "PMI_RANK=" + rank, "PMI_SIZE=12"};
    options.stdout_fd = write.get();
    options.own_process_group = true;
    return Process::spawn(options);
  }

  UniqueFd read_;
  Process shell_;
  pid_t child_ = 0;
};

TEST(launcher_process, is_the_nearest_ancestor_without_the_ranks_variables) {
  const ShellWithChild one("1");
  const ShellWithChild eleven("11");
  ASSERT_GT(one.child(), 0);
  const auto self = read_process_stat(::getpid());
  ASSERT_TRUE(self);
  const std::string expected = fmt::format("process {} of {}", ::getpid(), self->started);
  EXPECT_EQ(launcher_process(one.child(), {"PMI_RANK=1", "PMI_SIZE=12"}), expected);
  EXPECT_EQ(launcher_process(eleven.child(), {"PMI_RANK=11", "PMI_SIZE=12"}), expected);
  // The shell has another rank than that, so it would be the launcher.
  EXPECT_NE(launcher_process(eleven.child(), {"PMI_RANK=1"}), expected);
  EXPECT_NE(launcher_process(eleven.child(), {"PMI_RANK=1"}), "");
}

TEST(launcher_process, of_a_process_that_is_gone_is_unknown) {
  constexpr pid_t kNever = 1 << 30;
  EXPECT_EQ(launcher_process(kNever, {"PMI_RANK=1"}), "");
}

}  // namespace
}  // namespace gyre::group
