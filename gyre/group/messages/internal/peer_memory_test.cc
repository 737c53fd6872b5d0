// Messages are copied out of another process only where that is permitted, and never from where it has nothing.
#include "gyre/group/messages/internal/peer_memory.h"

#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>

namespace gyre::group::internal {
namespace {

constexpr std::uint64_t kValue = 4711;

Member this_process() {
  Member member;
  member.process = ::getpid();
  member.process_namespace = this_process_namespace();
  return member;
}

std::uint64_t address_of(const void* place) { return reinterpret_cast<std::uint64_t>(place); }

TEST(PeerMemoryTest, what_a_process_shows_can_be_read) {
  const auto desk = std::make_unique<Desk>();
  desk->probe_address = address_of(&kValue);
  desk->probe_value = kValue;
  PeerMemory memory(this_process(), this_process());
  EXPECT_TRUE(memory.readable(*desk));
  const std::array<char, 6> source{"bytes"};
  std::array<char, 6> target{};
  EXPECT_TRUE(memory.read(std::as_writable_bytes(std::span(target)), address_of(source.data())));
  EXPECT_EQ(target, source);
}

TEST(PeerMemoryTest, an_address_where_nothing_is_reads_as_false) {
  std::array<std::byte, 8> target{};
  EXPECT_FALSE(PeerMemory(this_process(), this_process()).read(target, 8));
}

TEST(PeerMemoryTest, a_process_that_shows_something_else_is_not_read) {
  const auto desk = std::make_unique<Desk>();
  desk->probe_address = address_of(&kValue);
  desk->probe_value = kValue + 1;
  EXPECT_FALSE(PeerMemory(this_process(), this_process()).readable(*desk));
}

TEST(PeerMemoryTest, a_process_of_another_namespace_is_not_read) {
  const auto desk = std::make_unique<Desk>();
  desk->probe_address = address_of(&kValue);
  desk->probe_value = kValue;
  Member other = this_process();
  other.process_namespace += 1;
  EXPECT_FALSE(PeerMemory(this_process(), other).readable(*desk));
}

/// A copy of this process that sleeps, under a number of our choice (0: any); -1 where the system refuses.
pid_t sleeping_copy(pid_t number) {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  if (number != 0) {
    arguments.set_tid = reinterpret_cast<std::uint64_t>(&number);
    arguments.set_tid_size = 1;
  }
  const auto process = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof(arguments)));
  if (process == 0) {
    for (;;) ::pause();
  }
  return process;
}

void end(pid_t process) {
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
}

TEST(PeerMemoryTest, a_process_that_got_the_number_of_one_that_has_ended_is_not_read) {
  if (::geteuid() != 0) return;  // Others cannot choose the number of a process.
  const auto desk = std::make_unique<Desk>();
  desk->probe_address = address_of(&kValue);
  desk->probe_value = kValue;
  Member peer = this_process();
  peer.process = sleeping_copy(0);
  ASSERT_GT(peer.process, 0);
  PeerMemory memory(this_process(), peer);
  ASSERT_TRUE(memory.readable(*desk));
  end(peer.process);
  ASSERT_EQ(sleeping_copy(peer.process), peer.process);
  std::uint64_t value = 0;
  EXPECT_FALSE(memory.read(std::as_writable_bytes(std::span(&value, 1)), address_of(&kValue)));
  end(peer.process);
}

}  // namespace
}  // namespace gyre::group::internal
