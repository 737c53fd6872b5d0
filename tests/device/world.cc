#include "tests/device/world.h"

#include <algorithm>
#include <iterator>

namespace gyre::test_device {

World::World() {
  const size_t bytes = kBytesPerDevice * kDevices;
  const int file = memfd_create("test device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) throw std::runtime_error("test device: no memory");
  void* shadow = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  void* device = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
  close(file);
  if (shadow == MAP_FAILED || device == MAP_FAILED)
    throw std::runtime_error("test device: its memory cannot be mapped");
  shadow_ = static_cast<char*>(shadow);
  device_ = static_cast<char*>(device);
}

void World::set_schedule(double eagerness, unsigned seed) {
  const std::lock_guard lock(mutex_);
  eagerness_ = eagerness;
  random_.seed(seed);
}

bool World::is_lazy() {
  const std::lock_guard lock(mutex_);
  return eagerness_ == 0;
}

StreamId World::new_stream(int device) {
  const std::lock_guard lock(mutex_);
  return {device, next_stream_++};
}

void World::enqueue(StreamId stream, std::function<void()> run, bool blocks) {
  push(stream, Step{std::move(run), std::nullopt, blocks});
}

void World::wait_on_stream(StreamId waiter, Position target) {
  {
    const std::lock_guard lock(mutex_);
    ++counters_.stream_waits;
  }
  if (target.stream != waiter) push(waiter, Step{nullptr, target, false});
}

void World::push(StreamId stream, Step step) {
  std::vector<Position> passing;
  {
    const std::lock_guard lock(mutex_);
    Queue& queue = queues_[stream];
    counters_.kernels += step.run ? 1 : 0;
    queue.steps.push_back(std::move(step));
    ++queue.enqueued;
    if (eagerness_ > 0) {
      for (auto& [id, other] : queues_) {
        if (other.steps.empty() || std::uniform_real_distribution<>(0, 1)(random_) >= eagerness_) continue;
        passing.push_back({id, other.done + 1 + random_() % other.steps.size()});
      }
    }
  }
  for (const Position& target : passing) advance(target);
}

Position World::position(StreamId stream) {
  const std::lock_guard lock(mutex_);
  return {stream, queues_[stream].enqueued};
}

bool World::reached(Position target) {
  {
    const std::lock_guard lock(mutex_);
    const Queue& queue = queues_[target.stream];
    if (queue.done >= target.steps) return true;
    const auto waits_since = std::chrono::steady_clock::now() - kLongestLaziness;
    if (queue.steps.empty() || queue.steps.front().queued > waits_since) return false;
  }
  return advance(target);
}

void World::wait_on_host(Position target) {
  {
    const std::lock_guard lock(mutex_);
    ++counters_.host_waits;
  }
  drain(target);
  check_for_failure();
}

void World::wait_on_host_for_device(int device) {
  std::vector<Position> targets;
  {
    const std::lock_guard lock(mutex_);
    ++counters_.host_waits;
    for (auto& [id, queue] : queues_) {
      if (id.device == device) targets.push_back({id, queue.enqueued});
    }
  }
  for (const Position& target : targets) drain(target);
  check_for_failure();
}

void World::check_for_failure() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

/// Takes the first step off `queue` and runs it without the lock. The caller has seen that none is running.
void World::run_one(std::unique_lock<std::mutex>& lock, Queue& queue) {
  Step step = std::move(queue.steps.front());
  queue.steps.pop_front();
  queue.running = true;
  lock.unlock();
  std::exception_ptr failure;
  try {
    if (step.wait) drain(*step.wait);
    if (step.run) step.run();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (failure && !failure_) failure_ = failure;
  queue.running = false;
  ++queue.done;
  ran_.notify_all();
}

void World::drain(Position target) {
  std::unique_lock lock(mutex_);
  Queue& queue = queues_[target.stream];
  while (queue.done < target.steps) {
    if (queue.running) {
      ran_.wait(lock);
    } else {
      run_one(lock, queue);
    }
  }
}

/// Runs a stream up to `target` as far as that needs no other process. Whether it got there.
bool World::advance(Position target, int depth) {
  std::unique_lock lock(mutex_);
  Queue& queue = queues_[target.stream];
  while (queue.done < target.steps) {
    if (queue.running || queue.steps.empty() || queue.steps.front().blocks) return false;
    if (const auto wait = queue.steps.front().wait; wait && queues_[wait->stream].done < wait->steps) {
      if (depth == 8) return false;
      lock.unlock();
      const bool there = advance(*wait, depth + 1);
      lock.lock();
      if (!there) return false;
      continue;  // Another thread may have taken the step meanwhile.
    }
    run_one(lock, queue);
  }
  return true;
}

void* World::allocate(int device, size_t bytes, StreamId stream) {
  const std::lock_guard lock(mutex_);
  reclaim();
  const size_t size = std::max(kRounding, (bytes + kRounding - 1) / kRounding * kRounding);
  void* memory = nullptr;
  if (const auto [first, last] = free_.equal_range({stream, size}); first != last) {
    // At once, as a caching allocator does: the same stream orders its uses. What was freed last, where somebody may
    // still look.
    const auto found = std::prev(last);
    memory = found->second;
    free_.erase(found);
    Queue& queue = queues_[stream];
    queue.steps.push_back({[to = open(memory), size] { std::memset(to, 0xff, size); }, std::nullopt, false});
    ++queue.enqueued;
  } else {
    if (used_[device] + size > kBytesPerDevice) throw std::runtime_error("test device: out of memory");
    memory = device_ + static_cast<size_t>(device) * kBytesPerDevice + used_[device];
    used_[device] += size;
    std::memset(open(memory), 0xff, size);
  }
  blocks_[memory] = Block{size, stream, {}};
  return memory;
}

void World::release(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  retired_.emplace_back(memory, std::move(found->second));
  blocks_.erase(found);
  reclaim();
}

void World::record(void* memory, StreamId stream) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end() || found->second.stream == stream) return;
  found->second.users.push_back({stream, 0});  // The position counts when the memory is released.
}

int World::device_of(const void* memory) const {
  return static_cast<int>(static_cast<size_t>(static_cast<const char*>(memory) - device_) / kBytesPerDevice);
}

/// Frees what all recorded streams have passed: the first time that it sees a block, it notes where they stand.
void World::reclaim() {
  for (auto block = retired_.begin(); block != retired_.end();) {
    bool passed = true;
    for (Position& user : block->second.users) {
      if (user.steps == 0) user.steps = queues_[user.stream].enqueued;
      passed = passed && queues_[user.stream].done >= user.steps;
    }
    if (!passed) {
      ++block;
      continue;
    }
    auto [memory, known] = std::move(*block);
    block = retired_.erase(block);
    free_.emplace(std::pair(known.stream, known.bytes), memory);
  }
}

Counters World::counters() {
  const std::lock_guard lock(mutex_);
  Counters now = counters_;
  for (const auto& [id, queue] : queues_) now.pending += queue.steps.size();
  return now;
}

}  // namespace gyre::test_device
