// The test device, without torch: memory that the host cannot touch, and streams that run as late as they may ("lazy")
// or at random points. A wait that a program forgets is then a wrong number, every time or nearly so.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gyre::test_device {

constexpr int kDevices = 2;

/// A stream of one device. Number 0 is the device's default stream; all others are unique in the process.
struct StreamId {
  int device = 0;
  int64_t number = 0;
  auto operator<=>(const StreamId&) const = default;
};

/// The point of a stream at which everything queued so far has run.
struct Position {
  StreamId stream;
  uint64_t steps = 0;
};

/// What the device has done since it was made.
struct Counters {
  uint64_t kernels = 0;
  uint64_t host_waits = 0;    // the host waited for a stream, an event or a device
  uint64_t stream_waits = 0;  // a stream was made to wait for an event
  uint64_t pending = 0;
};

/// All devices of the process. Thread-safe. No lock is held while a step runs, so a step may block (a collective does).
class World {
 public:
  World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// `eagerness`: 0 runs nothing until the host waits; else the probability that a queued step sets off some of a
  /// stream's.
  void set_schedule(double eagerness, unsigned seed);

  bool is_lazy();

  StreamId new_stream(int device);
  /// `blocks`: it waits for another process, and so never runs in passing, only in a wait of the host or in
  /// `run_blocking`.
  void enqueue(StreamId stream, std::function<void()> run, bool blocks = false);
  Position position(StreamId stream);
  void wait_on_stream(StreamId waiter, Position target);
  /// Like the next, throws what the first step that failed has thrown, at this wait and all later ones.
  void wait_on_host(Position target);
  void wait_on_host_for_device(int device);
  /// A device runs some time also if nobody waits for it: what was queued before kLongestLaziness is then run first, as
  /// far as that needs no other process.
  bool reached(Position target);
  /// Runs what stands before and in `target`, without counting as a wait of the program. For the delegate's own thread.
  void run_blocking(Position target) { drain(target); }

  /// Memory of `device` as tensors see it: the host faults when it touches it. Full of 0xff; where it was freed before,
  /// by a step on `stream`, as a first kernel of its new owner would overwrite it.
  void* allocate(int device, size_t bytes, StreamId stream);
  /// It goes to the next who allocates as much on the same stream, once all recorded streams have passed what is queued
  /// now.
  void release(void* memory);
  void record(void* memory, StreamId stream);
  int device_of(const void* memory) const;
  /// The same memory as kernels see it.
  void* open(const void* memory) const { return shadow_ + (static_cast<const char*>(memory) - device_); }

  Counters counters();

 private:
  static constexpr size_t kBytesPerDevice = size_t{1} << 30;
  static constexpr size_t kRounding = 512;
  static constexpr std::chrono::milliseconds kLongestLaziness{400};

  struct Step {
    std::function<void()> run;
    std::optional<Position> wait;
    bool blocks = false;
    std::chrono::steady_clock::time_point queued = std::chrono::steady_clock::now();
  };
  struct Queue {
    std::deque<Step> steps;
    uint64_t enqueued = 0, done = 0;
    bool running = false;
  };
  struct Block {
    size_t bytes = 0;
    StreamId stream;
    std::vector<Position> users;
  };

  void push(StreamId stream, Step step);
  void drain(Position target);
  bool advance(Position target, int depth = 0);
  void run_one(std::unique_lock<std::mutex>& lock, Queue& queue);
  void reclaim();
  void check_for_failure();

  std::mutex mutex_;
  std::condition_variable ran_;
  std::map<StreamId, Queue> queues_;
  std::map<const void*, Block> blocks_;
  std::multimap<std::pair<StreamId, size_t>, void*> free_;
  std::vector<std::pair<void*, Block>> retired_;
  char* device_ = nullptr;
  char* shadow_ = nullptr;
  size_t used_[kDevices] = {};
  std::mt19937 random_{0};
  double eagerness_ = 0;
  int64_t next_stream_ = 1;
  Counters counters_;
  std::exception_ptr failure_;
};

}  // namespace gyre::test_device
