#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "gyre/base/check.h"

namespace gyre::group {

/// Which ranks of a group, or of a part of one, have left in good order. Thread-safe.
class Departures {
 public:
  explicit Departures(int size) : left_(static_cast<std::size_t>(size)) {}

  bool has_left(int rank) const { return left_.at(static_cast<std::size_t>(rank)).load(std::memory_order_acquire); }
  int count() const { return count_.load(std::memory_order_acquire); }
  /// False when it was known already.
  bool mark(int rank) {
    if (left_.at(static_cast<std::size_t>(rank)).exchange(true, std::memory_order_acq_rel)) return false;
    count_.fetch_add(1, std::memory_order_release);
    return true;
  }

 private:
  std::vector<std::atomic<bool>> left_;
  std::atomic<int> count_{0};
};

/// A group's channels are below 2^32; those of its part p (subgroup.h) are (p << 32 | channel).
constexpr int kPartShift = 32;
constexpr std::uint64_t part_of(std::uint64_t channel) { return channel >> kPartShift; }

/// The departures from the parts of a group, by the parts' numbers (subgroup.h). A part is known from the first mention
/// on, for a rank may leave it before another one has made it. Not thread-safe.
class PartDepartures {
 public:
  /// When there are more, the one of the lowest number that nobody holds is forgotten: numbers are given in ascending
  /// order, and a rank that has still to make so old a part does not exist.
  static constexpr std::size_t kMostRemembered = std::size_t{1} << 12;

  explicit PartDepartures(int size) : size_(size) {}

  std::shared_ptr<Departures> of(std::uint64_t part) {
    auto& departures = parts_[part];
    if (departures) return departures;
    departures = std::make_shared<Departures>(size_);
    const std::shared_ptr<Departures> made = departures;
    if (parts_.size() > kMostRemembered) forget_oldest();
    return made;
  }
  std::size_t count() const { return parts_.size(); }

 private:
  void forget_oldest() {
    for (auto oldest = parts_.begin(); oldest != parts_.end(); ++oldest) {
      if (oldest->second.use_count() > 1) continue;
      parts_.erase(oldest);
      return;
    }
  }

  int size_;
  std::map<std::uint64_t, std::shared_ptr<Departures>> parts_;
};

}  // namespace gyre::group
