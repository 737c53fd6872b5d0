#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/timeline.h"
#include "gyre/params/shards.h"

namespace gyre::params::internal {

/// A worker's exchanges in a timeline. The row "parameter servers" has a phase for each of its calls, such as STEP.
/// Each block has a row of its own, "server 0: conv1.weight": a phase PUSH_PULL for each step, and within it PUSH until
/// the server has taken the gradients, and PULL until its answer is there. Not thread-safe.
class ExchangeTrace {
 public:
  using Time = SteadyClock::time_point;

  /// `names`: of the tensors that `blocks` are made of.
  ExchangeTrace(std::shared_ptr<Timeline> timeline, std::span<const Block> blocks, std::span<const std::string> names);

  bool runs() const { return timeline_->enabled(); }

  /// A call that began then ends now.
  void add_call(std::string_view phase, Time began, std::string detail = {});
  struct BlockTimes {
    Time began;
    Time taken;
    Time answered;
  };
  void add_block(std::size_t block, const BlockTimes& times);

 private:
  const std::shared_ptr<Timeline> timeline_;
  std::vector<std::string> rows_;  // By block.
};

}  // namespace gyre::params::internal
