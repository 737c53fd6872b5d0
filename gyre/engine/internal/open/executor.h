#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gyre/base/log.h"
#include "gyre/collectives/collectives.h"
#include "gyre/engine/handle.h"
#include "gyre/engine/internal/open/order.h"
#include "gyre/engine/internal/open/row_exchange.h"
#include "gyre/engine/request.h"
#include "gyre/engine/timeline_rows.h"
#include "gyre/group/lane.h"

namespace gyre::engine::internal {

/// An operation of this rank between submission and completion.
struct Pending {
  Request request;
  Handle handle;
  std::vector<std::byte> memory{};  ///< Of an operation in which this rank takes part only because it has joined.
  std::uint64_t serial = 0;         ///< Which of this rank's submissions it is.
};

/// What a signature asks for, in the terms of the collectives. `average_over`: by how many an average divides; 0: by
/// all.
collectives::Reduction reduction_of(const Signature& signature, int average_over = 0);

/// Of an allgather (`sizes`: OrderedOperation::sizes), a reduce-scatter, or an all-to-all in which every rank gets what
/// it expects.
RowsOfRank rows_of_rank(const Signature& signature, std::span<const std::int64_t> sizes, int rank, int size);

/// Where the result of these parts goes: the caller's memory if it has the result's size and is apart from the input,
/// else the result's own. Sets its shape.
std::span<std::byte> place_result(const Request& request, const RowsOfRank& rows, int rank, Result& result);

/// Bytes of one index of the first dimension.
std::size_t row_bytes(const Signature& signature);

/// Runs ordered operations on a lane. One thread.
class Executor {
 public:
  Executor(group::Lane& lane, const TimelineRows& timeline, Logger logger)
      : lane_(lane), timeline_(timeline), logger_(std::move(logger)) {}

  /// Runs one bucket: `operations[i]` is what the coordinator says of `pending[i]`. Returns the results in that order;
  /// throws what the collective throws, after which the lane is of no further use.
  std::vector<Result> run(const Bucket& operations, const std::vector<Pending>& pending);
  /// Runs an allgather, a reduce-scatter or an all-to-all.
  Result run_one(const Request& request, RowsOfRank rows, int average_over = 0);
  /// See row_counts.h. Of an all-to-all that is about to run.
  std::optional<RowDispute> find_dispute(const Request& request);

 private:
  /// Of operations that something else carries out.
  std::vector<Result> agreed_on(const Bucket& operations, const Signature& signature);
  void log_choice(const Request& first, std::size_t size_bytes, collectives::Algorithm algorithm) const;
  /// Adds its time to the lane's counter where it is worth reading the clock.
  void copy_counted(std::span<std::byte> to, std::span<const std::byte> from) const;
  void allreduce_alone(const Request& request, int average_over);
  void allreduce_fused(const std::vector<Pending>& pending, int average_over);
  void broadcast(const Request& request);

  group::Lane& lane_;
  const TimelineRows& timeline_;
  const Logger logger_;
  std::vector<std::byte> fusion_buffer_;
  collectives::PeerMappings peer_mappings_;
  std::uint64_t agreed_ = 0;
};

/// Rows of the first dimension that each rank gets from a reduce-scatter: even, the first ranks one more.
std::vector<std::int64_t> reduce_scatter_rows(std::int64_t rows, int size);

}  // namespace gyre::engine::internal
