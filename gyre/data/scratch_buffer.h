#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace gyre::data {

/// How much memory some buffers may take together. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t total_bytes) : total_bytes_(total_bytes) {}

  /// Error(kResourceExhausted) where less is left; then nothing has changed.
  void reserve(std::uint64_t bytes);
  void release(std::uint64_t bytes) { used_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  std::uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t total_bytes() const { return total_bytes_; }

 private:
  std::uint64_t total_bytes_;
  std::atomic<std::uint64_t> used_bytes_{0};
};

/// A part of a budget that is in use while this lives.
class MemoryReservation {
 public:
  /// Nothing where there is no budget. Error as MemoryBudget::reserve().
  MemoryReservation(MemoryBudget* budget, std::uint64_t bytes) : budget_(budget), bytes_(bytes) {
    if (budget_ != nullptr) budget_->reserve(bytes_);
  }
  ~MemoryReservation() {
    if (budget_ != nullptr) budget_->release(bytes_);
  }
  MemoryReservation(const MemoryReservation&) = delete;
  MemoryReservation& operator=(const MemoryReservation&) = delete;

 private:
  MemoryBudget* budget_;
  std::uint64_t bytes_;
};

/// Memory that grows and is used again, within a budget where it has one; it is not set to zero, which costs as much as
/// filling it. Not thread-safe.
class ScratchBuffer {
 public:
  explicit ScratchBuffer(std::shared_ptr<MemoryBudget> budget = nullptr) : budget_(std::move(budget)) {}
  ~ScratchBuffer() { clear(); }
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;

  /// `bytes` of it; what it held is lost when it has to grow. Error(kResourceExhausted) beyond the budget.
  std::span<std::byte> take(std::size_t bytes);
  /// The same, but its first `kept` bytes stay.
  std::span<std::byte> grow(std::size_t bytes, std::size_t kept);
  std::size_t capacity_bytes() const { return capacity_; }
  /// Null where it has none.
  MemoryBudget* budget() const { return budget_.get(); }

 private:
  void clear();

  std::shared_ptr<MemoryBudget> budget_;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace gyre::data
