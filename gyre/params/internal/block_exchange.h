#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/group/messages/point_to_point.h"
#include "gyre/params/rows.h"
#include "gyre/params/setup.h"
#include "gyre/params/shards.h"

namespace gyre::params::internal {

/// A worker's side of the blocks of dense tensors: a message for each, from the tensors and back. Not thread-safe.
class BlockExchange {
 public:
  using Handles = std::vector<group::MessageHandle>;
  using Values = std::span<const std::span<float>>;

  /// `messages` and `setup` must outlive it.
  BlockExchange(group::PointToPoint& messages, const Layout& layout, const TrainingSetup& setup);

  const std::vector<Block>& blocks() const { return blocks_; }
  /// By server: whether it has memory in common with this worker.
  void share_with(std::vector<bool> servers) { shares_ = std::move(servers); }

  /// `in_place`: the tensors lie in the memory in common with the servers that have it. `began`: gets the time at which
  /// each block sets out, where there is one.
  void send(std::span<const std::span<const float>> tensors, bool in_place, Handles& sent,
            std::vector<SteadyClock::time_point>* began = nullptr);
  void receive(Values tensors, bool in_place, Handles& arriving);
  /// When all have arrived: from where blocks of several tensors have arrived to the tensors.
  void spread(Values tensors, bool in_place) const;

  /// `states`: of the dense tensors, with slots of their sizes. Each call needs a request.
  void send_state(std::span<const TensorState> states);
  void receive_state(std::span<TensorState> states);

 private:
  int rank_of(std::size_t block) const { return layout_.rank_of_server(blocks_[block].server); }
  bool is_shared(std::size_t block) const { return shares_[static_cast<std::size_t>(blocks_[block].server)]; }

  group::PointToPoint& messages_;
  const Layout layout_;
  const std::vector<Block> blocks_;
  std::vector<bool> shares_;
  // By block, for blocks of several tensors: these travel as one message.
  std::vector<std::vector<float>> out_;
  std::vector<std::vector<float>> in_;
};

}  // namespace gyre::params::internal
