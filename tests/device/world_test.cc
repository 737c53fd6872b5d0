// A forgotten wait must be a wrong number, and a wait that is there must not: else the suites on this device show
// nothing.
#include "tests/device/world.h"

#include <gtest/gtest.h>

#include <thread>

namespace gyre::test_device {
namespace {

constexpr StreamId kMain{0, 0};

int number_at(World& world, void* memory) {
  int number = 0;
  std::memcpy(&number, world.open(memory), sizeof number);
  return number;
}

void write(World& world, StreamId stream, void* memory, int number) {
  world.enqueue(stream, [&world, memory, number] { std::memcpy(world.open(memory), &number, sizeof number); });
}

TEST(TestDevice, a_lazy_stream_runs_only_when_the_host_waits) {
  World world;
  void* memory = world.allocate(0, 4, kMain);
  write(world, kMain, memory, 7);
  EXPECT_EQ(number_at(world, memory), -1);
  world.wait_on_host(world.position(kMain));
  EXPECT_EQ(number_at(world, memory), 7);
  EXPECT_EQ(world.counters().host_waits, 1U);
}

TEST(TestDevice, a_stream_that_does_not_wait_reads_stale_memory) {
  for (const bool waits : {true, false}) {
    World world;
    const StreamId side = world.new_stream(0);
    void* memory = world.allocate(0, 4, kMain);
    write(world, kMain, memory, 7);
    if (waits) world.wait_on_stream(side, world.position(kMain));
    int seen = 0;
    world.enqueue(side, [&] { seen = number_at(world, memory); });
    world.wait_on_host(world.position(side));
    EXPECT_EQ(seen, waits ? 7 : -1);
  }
}

TEST(TestDevice, memory_freed_without_a_record_gets_a_new_owner_under_a_side_stream) {
  for (const bool recorded : {true, false}) {
    World world;
    const StreamId side = world.new_stream(0);
    void* memory = world.allocate(0, 4, kMain);
    write(world, kMain, memory, 7);
    world.wait_on_stream(side, world.position(kMain));
    int seen = 0;
    world.enqueue(side, [&] { seen = number_at(world, memory); });
    if (recorded) world.record(memory, side);
    world.release(memory);
    EXPECT_EQ(world.allocate(0, 4, kMain) == memory, !recorded);
    world.wait_on_host(world.position(kMain));
    world.wait_on_host(world.position(side));
    EXPECT_EQ(seen, recorded ? 7 : -1);
  }
}

TEST(TestDevice, a_step_that_blocks_never_runs_in_passing_and_blocks_no_other_thread) {
  World world;
  world.set_schedule(1, 1);
  const StreamId side = world.new_stream(1);
  std::mutex gate;
  gate.lock();
  bool ran = false;
  world.enqueue(
      side,
      [&] {
        const std::lock_guard passed(gate);
        ran = true;
      },
      true);
  int others = 0;
  world.enqueue(kMain, [&] { ++others; });
  EXPECT_EQ(others, 1);
  EXPECT_FALSE(ran);
  std::thread delegate([&] { world.run_blocking(world.position(side)); });
  world.enqueue(kMain, [&] { ++others; });
  EXPECT_EQ(others, 2);
  gate.unlock();
  delegate.join();
  EXPECT_TRUE(ran);
}

TEST(TestDeviceDeathTest, the_host_cannot_touch_its_memory) {
  World world;
  auto* memory = static_cast<volatile char*>(world.allocate(1, 4, {1, 0}));
  EXPECT_EQ(world.device_of(const_cast<char*>(memory)), 1);
  EXPECT_DEATH((void)*memory, "");
}

}  // namespace
}  // namespace gyre::test_device
