#pragma once

#include <cstddef>
#include <vector>

#include "gyre/engine/internal/open/order.h"

namespace gyre::engine::internal {

/// Whether an allreduce gives the same bits wherever its elements lie in a bucket, whatever else is in it. Between
/// hosts the order in which an element's contributions are combined depends on its place, so this is so for integers
/// and booleans, which do not care about order, and for sums over two hosts, of a + b and b + a; not for float16 and
/// bfloat16, which are rounded more often in small buckets. (min and max take either of -0 and +0.)
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
