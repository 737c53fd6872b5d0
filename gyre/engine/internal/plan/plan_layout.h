#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gyre/engine/plan.h"

namespace gyre::engine::internal {

/// A stretch of the arena that is reduced in one collective: tensors of one type, one after the other.
struct PlanBucket {
  DataType type = DataType::kFloat32;
  std::size_t offset_bytes = 0;  ///< In every rank's arena; a multiple of 64.
  std::size_t size_bytes = 0;    ///< A multiple of 64; what lies between tensors is zero and stays so.
  std::vector<std::size_t> tensors;
};

/// Where each tensor lies and which bucket it belongs to. Pure: equal on all ranks for equal arguments.
struct PlanLayout {
  std::vector<PlanBucket> buckets;  ///< In the order in which they run.
  std::vector<std::size_t> tensor_offsets_bytes;
  std::vector<std::size_t> tensor_sizes_bytes;
  std::vector<std::size_t> bucket_of_tensor;
  std::size_t arena_bytes = 0;
};

/// Lays out `tensors` in `order`, a permutation of their indices that should be the one in which backward produces
/// them: a bucket closes when the next tensor of its type would make it larger than `bucket_bytes` (0: one tensor
/// each), unless it is a group's, and buckets run in the order in which their last tensors come.
PlanLayout lay_out(const std::vector<PlanTensor>& tensors, const std::vector<std::size_t>& order,
                   std::size_t bucket_bytes);

/// The permutation that begins with `ready_order` and goes on with the other tensors in their own order.
/// Error(kInvalidArgument) for an index twice or out of range.
std::vector<std::size_t> complete_order(const std::vector<std::size_t>& ready_order, std::size_t tensor_count);

/// One line per tensor, for comparing the ranks' plans.
std::vector<std::string> describe_plan(const std::vector<PlanTensor>& tensors, const PlanOptions& options,
                                       std::size_t fusion_bytes);

}  // namespace gyre::engine::internal
