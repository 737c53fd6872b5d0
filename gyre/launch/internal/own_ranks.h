#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/launch/rank_set.h"

namespace gyre::launch {

/// Which of the job's ranks run on this host. A rank's index is its place among them.
class OwnRanks {
 public:
  /// `count` ranks: all of a job on this host alone, or the part's. Error(kInvalidArgument) for a part with another
  /// number of ranks, or whose ranks are not ascending, or not among the job's.
  OwnRanks(const std::optional<HostPart>& part, int count) : size_(part ? part->size : count) {
    if (part) {
      ranks_ = part->ranks;
      check(count);
    } else {
      ranks_.resize(static_cast<std::size_t>(count));
      std::iota(ranks_.begin(), ranks_.end(), 0);
    }
  }

  const std::vector<int>& all() const { return ranks_; }
  int job_size() const { return size_; }
  int at(std::size_t index) const { return ranks_[index]; }
  bool contains(int rank) const { return std::ranges::binary_search(ranks_, rank); }
  /// Precondition: contains(rank).
  std::size_t index_of(int rank) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(ranks_, rank) - ranks_.begin());
  }

 private:
  void check(int count) const {
    if (ranks_.size() != static_cast<std::size_t>(count)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("this host's part names {} ranks, and {} are to run here", ranks_.size(), count));
    }
    if (std::ranges::adjacent_find(ranks_, std::greater_equal()) != ranks_.end()) {
      throw Error(ErrorCode::kInvalidArgument, "the ranks of this host's part are not ascending");
    }
    if (!ranks_.empty() && (ranks_.front() < 0 || ranks_.back() >= size_)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("ranks {} to {} are not among the {} of the job", ranks_.front(), ranks_.back(), size_));
    }
  }

  std::vector<int> ranks_;  ///< Ascending.
  int size_;
};

}  // namespace gyre::launch
