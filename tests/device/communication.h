// What the stand-in for NCCL communicates by: messages through torch's store, in steps of a stream of its own.
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/device/device.h"

namespace gyre::test_device {

using Bytes = std::vector<uint8_t>;
using std::chrono::milliseconds;

// Of a lazy device: what one rank waits for may depend on a stream of another rank that nobody there waits for.
inline constexpr milliseconds kLongestLaziness{100};
inline constexpr std::chrono::microseconds kPause{300};

/// The group was given up while a step waited for another rank.
struct Closed {};

/// A connection to torch's store that only the communication stream uses.
class Mailbox {
 public:
  Mailbox(const c10::intrusive_ptr<c10d::Store>& store, milliseconds timeout)
      : store_(store->clone()), timeout_(timeout) {}

  void post(const std::string& key, const Bytes& bytes) {
    connected([&] { store_->set(key, bytes); });
  }
  void forget(const std::string& key) {
    connected([&] { store_->deleteKey(key); });
  }

  /// Waits until it is there, as a kernel of NCCL does; ends after the time limit, or when the group is closed.
  Bytes fetch(const std::string& key) {
    const auto until = std::chrono::steady_clock::now() + timeout_;
    while (!connected([&] { return store_->check({key}); })) {
      if (closed_) throw Closed{};
      TORCH_CHECK(std::chrono::steady_clock::now() < until, "standin: no ", key, " within ", timeout_.count(), " ms");
      std::this_thread::sleep_for(kPause);
    }
    return connected([&] { return store_->get(key); });
  }

  /// Returns when all ranks have called it with this name.
  void meet(const std::string& name, int rank, int size) {
    const std::string prefix = "meet for " + name + ", rank ";
    post(prefix + std::to_string(rank), {1});
    for (int other = 0; other < size; ++other) fetch(prefix + std::to_string(other));
  }

  void close() { closed_ = true; }
  /// What waits for a rank that has gone needs to wait no longer.
  void leave() { leaves_ = true; }

  std::string last_posted;

 private:
  /// A rank that has gone may take the store with it. A kernel of NCCL sees nothing of that, and waits.
  template <typename Use>
  std::invoke_result_t<Use> connected(const Use& use) {
    try {
      return use();
    } catch (const c10::DistNetworkError&) {
      const auto until = std::chrono::steady_clock::now() + timeout_;
      while (!closed_ && !leaves_ && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(kPause);
      if (closed_) throw Closed{};
      throw;
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
  milliseconds timeout_;
  std::atomic<bool> closed_{false}, leaves_{false};
};

/// The stream of one device, and the thread that runs it where nobody waits for it.
class Communication {
 public:
  explicit Communication(int device) : stream_(world().new_stream(device)), thread_([this] { run(); }) {}
  Communication(const Communication&) = delete;
  Communication& operator=(const Communication&) = delete;
  ~Communication() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  StreamId stream() const { return stream_; }

  Position enqueue(std::function<void()> step) {
    world().wait_on_stream(stream_, world().position(current_stream(static_cast<c10::DeviceIndex>(stream_.device))));
    world().enqueue(stream_, std::move(step), true);
    const Position end = world().position(stream_);
    {
      const std::lock_guard lock(mutex_);
      wanted_ = end;
    }
    changed_.notify_all();
    return end;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    Position reached{stream_, 0};
    while (true) {
      changed_.wait(lock, [&] { return stopped_ || wanted_.steps > reached.steps; });
      if (!stopped_ && world().is_lazy()) changed_.wait_for(lock, kLongestLaziness, [&] { return stopped_; });
      if (stopped_ && wanted_.steps <= reached.steps) return;
      reached = wanted_;
      lock.unlock();
      world().run_blocking(reached);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  StreamId stream_;
  Position wanted_;
  std::thread thread_;
};

}  // namespace gyre::test_device
