#include "gyre/engine/internal/plan_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace gyre::engine::internal {

namespace {

constexpr std::size_t kAlignmentBytes = 64;
constexpr std::size_t kOneHostBucketBytes = std::size_t{4} << 20;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }

}  // namespace

PlanLayout lay_out(const std::vector<PlanTensor>& tensors, std::size_t bucket_bytes) {
  PlanLayout layout;
  std::map<DataType, std::size_t> open;  // The bucket of each type that may still grow.
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const PlanTensor& tensor = tensors[index];
    const std::size_t bytes = element_count(tensor.shape) * collectives::size_of(tensor.type);
    const auto found = open.find(tensor.type);
    const bool joins = found != open.end() && layout.buckets[found->second].size_bytes + aligned(bytes) <= bucket_bytes;
    if (!joins) {
      open[tensor.type] = layout.buckets.size();
      layout.buckets.push_back({tensor.type, 0, 0, {}});
    }
    const std::size_t bucket = open[tensor.type];
    layout.tensor_offsets_bytes.push_back(layout.buckets[bucket].size_bytes);  // In the bucket, for now.
    layout.tensor_sizes_bytes.push_back(bytes);
    layout.bucket_of_tensor.push_back(bucket);
    layout.buckets[bucket].size_bytes += aligned(bytes);
    layout.buckets[bucket].tensors.push_back(index);
  }
  for (PlanBucket& bucket : layout.buckets) {
    bucket.offset_bytes = layout.arena_bytes;
    layout.arena_bytes += bucket.size_bytes;
  }
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    layout.tensor_offsets_bytes[index] += layout.buckets[layout.bucket_of_tensor[index]].offset_bytes;
  }
  return layout;
}

std::size_t plan_bucket_bytes(std::size_t fusion_bytes, bool one_host) {
  return one_host ? std::min(fusion_bytes, kOneHostBucketBytes) : fusion_bytes;
}

std::vector<std::string> describe_plan(const std::vector<PlanTensor>& tensors, const PlanOptions& options,
                                       std::size_t fusion_bytes) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{} tensors, {}, prescale {}, postscale {}, buckets of {} bytes", tensors.size(),
                              name(options.operation), options.prescale, options.postscale, fusion_bytes));
  for (const PlanTensor& tensor : tensors) {
    lines.push_back(fmt::format("'{}' {}", tensor.name, describe_tensor(tensor.type, tensor.shape)));
  }
  return lines;
}

}  // namespace gyre::engine::internal
