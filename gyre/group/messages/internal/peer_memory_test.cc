// Messages are copied out of another process only where that is permitted, and never from where it has nothing.
#include "gyre/group/messages/internal/peer_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
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

}  // namespace
}  // namespace gyre::group::internal
