#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "gyre/base/check.h"

namespace gyre::group {

/// Which ranks of a group, or of a subgroup, have left, in good order or because they died. Thread-safe.
class ExitedRanks {
 public:
  explicit ExitedRanks(int size) : left_(static_cast<std::size_t>(size)), lost_(static_cast<std::size_t>(size)) {}

  bool has_left(int rank) const { return left_.at(static_cast<std::size_t>(rank)).load(std::memory_order_acquire); }
  int count() const { return count_.load(std::memory_order_acquire); }
  /// True where has_left() is, and the rank died.
  bool was_lost(int rank) const { return lost_.at(static_cast<std::size_t>(rank)).load(std::memory_order_acquire); }
  /// False when it was known already.
  bool mark(int rank, bool lost = false) {
    if (lost && !has_left(rank)) lost_.at(static_cast<std::size_t>(rank)).store(true, std::memory_order_release);
    if (left_.at(static_cast<std::size_t>(rank)).exchange(true, std::memory_order_acq_rel)) return false;
    count_.fetch_add(1, std::memory_order_release);
    return true;
  }

 private:
  std::vector<std::atomic<bool>> left_;
  std::vector<std::atomic<bool>> lost_;
  std::atomic<int> count_{0};
};

/// A group's channels are below 2^32; those of its subgroup s (subgroup.h) are (s << 32 | channel).
constexpr int kSubgroupShift = 32;
constexpr std::uint64_t subgroup_of(std::uint64_t channel) { return channel >> kSubgroupShift; }

/// Which ranks have left which subgroup (subgroup.h), by its number. A subgroup is known from the first mention on, for
/// a rank may leave it before another one has made it. Not thread-safe.
class SubgroupExits {
 public:
  /// When there are more, the one of the lowest number that nobody holds is forgotten: numbers are given in ascending
  /// order, and a rank that has still to make so old a subgroup does not exist.
  static constexpr std::size_t kMostRemembered = std::size_t{1} << 12;

  explicit SubgroupExits(int size) : size_(size) {}

  std::shared_ptr<ExitedRanks> of(std::uint64_t subgroup) {
    auto& exited = subgroups_[subgroup];
    if (exited) return exited;
    exited = std::make_shared<ExitedRanks>(size_);
    const std::shared_ptr<ExitedRanks> made = exited;
    if (subgroups_.size() > kMostRemembered) forget_oldest();
    return made;
  }
  std::size_t count() const { return subgroups_.size(); }

 private:
  void forget_oldest() {
    for (auto oldest = subgroups_.begin(); oldest != subgroups_.end(); ++oldest) {
      if (oldest->second.use_count() > 1) continue;
      subgroups_.erase(oldest);
      return;
    }
  }

  int size_;
  std::map<std::uint64_t, std::shared_ptr<ExitedRanks>> subgroups_;
};

}  // namespace gyre::group
