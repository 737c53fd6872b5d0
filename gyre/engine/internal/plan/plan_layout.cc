#include "gyre/engine/internal/plan/plan_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::engine::internal {

namespace {

constexpr std::size_t kAlignmentBytes = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }

std::size_t size_of(const PlanTensor& tensor) {
  return element_count(tensor.shape) * collectives::size_of(tensor.type);
}

/// The buckets one after the other, and their tensors one after the other within them.
void place_tensors(const std::vector<PlanTensor>& tensors, PlanLayout& layout) {
  layout.tensor_offsets_bytes.resize(tensors.size());
  layout.tensor_sizes_bytes.resize(tensors.size());
  layout.bucket_of_tensor.resize(tensors.size());
  for (std::size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    layout.buckets[bucket].offset_bytes = layout.arena_bytes;
    for (const std::size_t index : layout.buckets[bucket].tensors) {
      layout.tensor_offsets_bytes[index] = layout.arena_bytes;
      layout.tensor_sizes_bytes[index] = size_of(tensors[index]);
      layout.bucket_of_tensor[index] = bucket;
      layout.arena_bytes += aligned(size_of(tensors[index]));
    }
  }
}

}  // namespace

std::vector<std::size_t> complete_order(const std::vector<std::size_t>& ready_order, std::size_t tensor_count) {
  std::vector<bool> taken(tensor_count, false);
  std::vector<std::size_t> order;
  order.reserve(tensor_count);
  for (const std::size_t index : ready_order) {
    if (index >= tensor_count || taken[index]) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("an order of {} tensors holds {} {}", tensor_count, index,
                                                           index >= tensor_count ? "which does not exist" : "twice"));
    }
    taken[index] = true;
    order.push_back(index);
  }
  for (std::size_t index = 0; index < tensor_count; ++index) {
    if (!taken[index]) order.push_back(index);
  }
  return order;
}

PlanLayout lay_out(const std::vector<PlanTensor>& tensors, const std::vector<std::size_t>& order,
                   std::size_t bucket_bytes) {
  PlanLayout layout;
  std::vector<PlanBucket>& buckets = layout.buckets;
  std::map<std::pair<DataType, int>, std::size_t> open;  // The bucket of each type and group that may still grow.
  std::vector<std::size_t> position_of(tensors.size());
  for (std::size_t position = 0; position < order.size(); ++position) {
    const PlanTensor& tensor = tensors[order[position]];
    position_of[order[position]] = position;
    const auto [found, is_new] = open.try_emplace({tensor.type, tensor.group}, buckets.size());
    const bool fits =
        !is_new && (tensor.group >= 0 || buckets[found->second].size_bytes + aligned(size_of(tensor)) <= bucket_bytes);
    if (!fits) {
      found->second = buckets.size();
      buckets.push_back({tensor.type, 0, 0, {}});
    }
    const std::size_t bucket = found->second;
    buckets[bucket].size_bytes += aligned(size_of(tensor));
    buckets[bucket].tensors.push_back(order[position]);
  }
  std::sort(buckets.begin(), buckets.end(), [&](const PlanBucket& a, const PlanBucket& b) {
    return position_of[a.tensors.back()] < position_of[b.tensors.back()];
  });
  place_tensors(tensors, layout);
  return layout;
}

std::vector<std::string> describe_plan(const std::vector<PlanTensor>& tensors, const PlanOptions& options,
                                       std::size_t fusion_bytes) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{} tensors, {}, prescale {}, postscale {}, buckets of {} bytes, on the wire {}{}",
                              tensors.size(), name(options.operation), options.prescale, options.postscale,
                              fusion_bytes, name(options.wire), options.error_feedback ? " with error feedback" : ""));
  for (const PlanTensor& tensor : tensors) {
    lines.push_back(fmt::format("'{}' {}{}", tensor.name, describe_tensor(tensor.type, tensor.shape),
                                tensor.group < 0 ? "" : fmt::format(", of group {}", tensor.group)));
  }
  return lines;
}

}  // namespace gyre::engine::internal
