#include "gyre/store/reading/read_ahead.h"

#include <algorithm>
#include <cstring>

#include "gyre/base/thread.h"

namespace gyre::store {

namespace {

/// Parts that wait; more are left out.
constexpr std::size_t kMostQueued = std::size_t{1} << 16;

}  // namespace

ReadAhead::~ReadAhead() {
  stop_.request_stop();
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void ReadAhead::start_threads() {
  while (threads_.size() < static_cast<std::size_t>(threads_wanted_)) {
    threads_.push_back(start_thread("reading ahead", [this, stop = stop_.get_token()] { fetch_parts(stop); }));
  }
}

std::shared_ptr<ReadAhead::Part> ReadAhead::find(const Object& object, std::uint64_t offset_bytes) const {
  auto behind = parts_.upper_bound({&object, offset_bytes});
  if (behind == parts_.begin()) return nullptr;
  --behind;
  const bool holds = behind->first.first == &object && offset_bytes < behind->second->end();
  return holds ? behind->second : nullptr;
}

std::uint64_t ReadAhead::next_part(const Object& object, std::uint64_t offset_bytes) const {
  const auto behind = parts_.upper_bound({&object, offset_bytes});
  return behind != parts_.end() && behind->first.first == &object ? behind->first.second : object.size_bytes;
}

void ReadAhead::add(const Place& place, data::FileRange range) {
  const std::uint64_t end = std::min(range.offset_bytes + range.size_bytes, place.object->size_bytes);
  std::uint64_t offset = range.offset_bytes;
  while (offset < end && queue_.size() < kMostQueued) {
    if (const auto part = find(*place.object, offset)) {
      offset = part->end();
      continue;
    }
    const std::uint64_t size = std::min({end - offset, kPieceBytes, next_part(*place.object, offset) - offset});
    auto part = std::make_shared<Part>();
    part->place = place;
    part->offset_bytes = offset;
    part->size_bytes = size;
    parts_.emplace(std::pair(place.object, offset), part);
    queue_.push_back(std::move(part));
    offset += size;
  }
}

void ReadAhead::expect(const Place& place, std::span<const data::FileRange> parts) {
  {
    const MutexLock lock(mutex_);
    if (stop_.stop_requested()) return;
    start_threads();
    for (const data::FileRange& range : parts) add(place, range);
  }
  changed_.notify_all();
}

std::shared_ptr<ReadAhead::Part> ReadAhead::next_to_fetch() {
  while (!queue_.empty() && queue_.front()->state != State::kQueued) queue_.pop_front();
  if (queue_.empty()) return nullptr;
  const std::uint64_t size = queue_.front()->size_bytes;
  if (used_bytes_ > 0 && used_bytes_ + size > memory_bytes_) return nullptr;
  auto part = std::move(queue_.front());
  queue_.pop_front();
  part->state = State::kFetching;
  used_bytes_ += size;
  return part;
}

void ReadAhead::drop(Part& part) {
  if (part.state == State::kGone) return;
  if (part.state != State::kQueued) used_bytes_ -= part.size_bytes;
  part.state = State::kGone;
  part.bytes = {};
  parts_.erase({part.place.object, part.offset_bytes});
  while (!there_.empty() && there_.front()->state == State::kGone) there_.pop_front();
}

void ReadAhead::fetch_parts(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (!stop.stop_requested()) {
    const std::shared_ptr<Part> part = next_to_fetch();
    if (!part) {
      changed_.wait(mutex_);
      continue;
    }
    lock.unlock();
    Bytes bytes;
    bool arrived = false;
    try {
      bytes.resize(static_cast<std::size_t>(part->size_bytes));
      part->place.ranges->read(*part->place.object, part->offset_bytes, bytes);
      arrived = true;
    } catch (const std::exception&) {  // The reader that needs the part meets the error, and says it.
      arrived = false;
    }
    lock.lock();
    if (arrived) {
      part->bytes = std::move(bytes);
      part->state = State::kThere;
      there_.push_back(part);
    } else {
      drop(*part);
    }
    changed_.notify_all();
  }
}

void ReadAhead::missed(std::uint64_t bytes) {
  const bool short_of_memory = !queue_.empty() && used_bytes_ + queue_.front()->size_bytes > memory_bytes_;
  if (!short_of_memory) return;
  for (std::uint64_t freed = 0; freed < bytes && !there_.empty();) {
    const std::shared_ptr<Part> oldest = there_.front();
    there_.pop_front();
    if (oldest->state != State::kThere) continue;
    freed += oldest->size_bytes;
    drop(*oldest);
  }
  changed_.notify_all();
}

ReadAhead::Taken ReadAhead::take(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Part> part = find(object, offset_bytes);
  while (part && part->state == State::kFetching) {
    changed_.wait(mutex_);
    part = find(object, offset_bytes);
  }
  if (part && part->state == State::kThere) {
    const auto from = std::span(part->bytes).subspan(static_cast<std::size_t>(offset_bytes - part->offset_bytes));
    const std::size_t bytes = std::min(from.size(), into.size());
    std::memcpy(into.data(), from.data(), bytes);
    part->taken_bytes += bytes;
    if (part->taken_bytes >= part->size_bytes) {
      drop(*part);
      changed_.notify_all();
    }
    return {.bytes = bytes};
  }
  if (part) drop(*part);  // Still in the queue: the caller is faster.
  missed(into.size());
  return {.bytes = 0, .until = next_part(object, offset_bytes)};
}

bool ReadAhead::holds(const Object& object, const data::FileRange& range) const {
  const MutexLock lock(mutex_);
  const std::uint64_t end = range.offset_bytes + range.size_bytes;
  for (std::uint64_t offset = range.offset_bytes; offset < end;) {
    const auto part = find(object, offset);
    if (!part || part->state != State::kThere) return false;
    offset = part->end();
  }
  return true;
}

std::uint64_t ReadAhead::used_bytes() const {
  const MutexLock lock(mutex_);
  return used_bytes_;
}

}  // namespace gyre::store
