#pragma once

#include <cstddef>
#include <vector>

#include "gyre/engine/internal/open/order.h"

namespace gyre::engine::internal {

/// Whether an allreduce gives the same bits wherever its elements lie in a bucket, whatever else is in it. Between
/// hosts the order in which an element's contributions are combined depends on its place. Integers, booleans, minimum
/// and maximum do not care about order; and over two hosts there are only a ∘ b and b ∘ a, which are equal (ADR 68).
bool bits_are_free_of_place(const Signature& signature, int hosts);

struct FusionItem {
  OrderedOperation operation;
  Signature signature;
};

/// Cuts `units` (lists of operations that must not be split when they fit) into buckets of one kind, type, operation
/// and scale, at most `fusion_bytes` each; order is kept. Several units share a bucket only where that cannot change
/// bits (bits_are_free_of_place), since which of them meet here depends on timing.
std::vector<Bucket> fuse(const std::vector<std::vector<FusionItem>>& units, std::size_t fusion_bytes, int hosts);

}  // namespace gyre::engine::internal
