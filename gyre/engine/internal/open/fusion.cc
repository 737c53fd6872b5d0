#include "gyre/engine/internal/open/fusion.h"

#include "gyre/engine/internal/open/signature_check.h"

namespace gyre::engine::internal {

namespace {

/// An exchange in shared memory starts in microseconds: what is as large as this gains less by fusing than copies cost.
constexpr std::size_t kNotFusedOnOneHostBytes = std::size_t{1} << 20;

std::size_t size_bytes(const Signature& signature) {
  return element_count(signature.shape) * collectives::size_of(signature.type);
}

}  // namespace

bool bits_are_free_of_place(const Signature& signature, int hosts) {
  if (hosts <= 2 || !collectives::is_floating_point(signature.type)) return true;
  return signature.operation == ReduceOperation::kMin || signature.operation == ReduceOperation::kMax;
}

std::vector<Bucket> fuse(const std::vector<std::vector<FusionItem>>& units, std::size_t fusion_bytes, int hosts) {
  std::vector<Bucket> buckets;
  const Signature* open_signature = nullptr;  // Of the last bucket, while it may still grow.
  std::size_t open_bytes = 0;
  for (const auto& unit : units) {
    if (open_signature != nullptr && !bits_are_free_of_place(*open_signature, hosts)) open_signature = nullptr;
    for (const FusionItem& item : unit) {
      const std::size_t bytes = size_bytes(item.signature);
      const bool alone = hosts == 1 && bytes >= kNotFusedOnOneHostBytes;
      if (alone) open_signature = nullptr;
      const bool joins = open_signature != nullptr && fusable(*open_signature, item.signature) &&
                         buckets.back().back().divisor == item.operation.divisor && open_bytes + bytes <= fusion_bytes;
      if (joins) {
        buckets.back().push_back(item.operation);
        open_bytes += bytes;
        continue;
      }
      buckets.push_back({item.operation});
      open_signature = alone ? nullptr : &item.signature;
      open_bytes = bytes;
    }
  }
  return buckets;
}

}  // namespace gyre::engine::internal
