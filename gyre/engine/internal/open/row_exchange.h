#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gyre/engine/request.h"
#include "gyre/group/lane.h"

// The ranks of an all-to-all tell each other how many rows they send, on their lane's thread.

namespace gyre::engine::internal {

/// What a rank brings to an operation, and what it gets, in rows of the first dimension.
struct RowsOfRank {
  std::vector<std::int64_t> sent;      ///< To each rank (all-to-all).
  std::vector<std::int64_t> received;  ///< From each rank: the parts of the result. One part in a reduce-scatter.
};

/// Of an all-to-all. Error(kProtocol) if other ranks send row counts that cannot be.
RowsOfRank exchanged_rows(group::Lane& lane, const Signature& signature, const std::string& name);

/// A rank sends another one something else than that one expects.
struct RowDispute {
  int sender = 0;
  int receiver = 0;
  std::string message;  ///< On the receiver.
};

/// The first one in the order of receivers, then of senders; the same on all ranks. Of an
/// operation whose RowKnowledge is kDisputed.
std::optional<RowDispute> find_dispute(group::Lane& lane, const Signature& signature, const std::string& name);

}  // namespace gyre::engine::internal
