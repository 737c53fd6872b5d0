#pragma once

#include <cstddef>

#include "gyre/group/messages/point_to_point.h"
#include "gyre/params/internal/outbox.h"
#include "gyre/params/internal/shard.h"

namespace gyre::params::internal {

/// A server's side of what is not a step's blocks, to or from the worker of one rank: parameters that it sets, tables,
/// and the optimizer's state. A value; thread-safe as Shard is.
class Transfers {
 public:
  /// Both must outlive it.
  Transfers(group::PointToPoint& messages, Shard& shard) : messages_(messages), shard_(shard) {}

  /// Nobody steps meanwhile.
  void receive_parameters(int rank);
  void receive_state(int rank);
  void send_state(int rank);
  /// Nobody steps until the worker has it.
  void send_table(int rank, std::size_t block, Outbox& outbox);
  /// Of a table: how many rows have changed since the worker got them, and these.
  void send_changes(int rank, int worker, std::size_t block, Outbox& outbox);

 private:
  void receive(int rank, std::size_t block, std::span<std::byte> bytes);
  void send(int rank, std::size_t block, std::span<const std::byte> bytes);

  group::PointToPoint& messages_;
  Shard& shard_;
};

}  // namespace gyre::params::internal
