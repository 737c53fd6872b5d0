#include "gyre/collectives/internal/kernels/reduction_plan.h"

#include <fmt/format.h>

#include <array>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::collectives::internal {

ReductionPlan plan_reduction(const Reduction& reduction, int size) {
  const bool average = reduction.operation == ReduceOperation::kAverage;
  ReductionPlan plan{.type = reduction.type, .operation = average ? ReduceOperation::kSum : reduction.operation};
  if (plan.type == DataType::kFloat32) plan.wire = reduction.wire;
  if (plan.type == DataType::kBoolean) {
    if (reduction.prescale != 1.0 || reduction.postscale != 1.0 || average) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("a tensor of type bool cannot be scaled or averaged (operation {}, prescale {}, postscale "
                      "{}); convert it to a number type first",
                      name(reduction.operation), reduction.prescale, reduction.postscale));
    }
    return plan;
  }
  const int ranks = average ? (reduction.average_over > 0 ? reduction.average_over : size) : 1;
  const bool floats = is_floating_point(plan.type);
  plan.scaling = make_scaling(floats ? reduction.prescale : 1.0, reduction.postscale, ranks);
  if (!floats) plan.contribution_scale = reduction.prescale;
  return plan;
}

void scale_contribution(const ReductionPlan& plan, std::span<std::byte> buffer) {
  if (plan.contribution_scale == 1.0) return;
  scale_in_place(buffer.data(), plan.elements_in(buffer.size()), plan.type, {.factor = plan.contribution_scale});
}

void add_up(std::byte* sums, std::span<const std::byte* const> contributions, std::size_t count,
            const ReductionPlan& plan) {
  const Scaling scaling{.prescale = plan.scaling.prescale};
  if (plan.of_halves()) {
    reduce_to_float32(reinterpret_cast<float*>(sums), contributions, count, plan.type, plan.operation, scaling);
  } else {
    reduce(sums, contributions, count, plan.type, plan.operation, scaling);
  }
}

PartialSums::PartialSums(std::span<std::byte> range, const ReductionPlan& plan)
    : range_(range), plan_(plan), widening_(size_of(plan.sum_type()) / size_of(plan.type)), sums_(range) {
  if (!plan.of_halves()) return;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(range.size() * widening_);
  sums_ = {memory_.get(), range.size() * widening_};
}

void PartialSums::take(std::size_t offset_bytes, std::size_t size_bytes) const {
  if (!plan_.of_halves() && plan_.scaling.prescale == 1.0) return;  // It stands there.
  const std::array<const std::byte*, 1> own{range_.data() + in_range(offset_bytes)};
  add_up(sums_.data() + offset_bytes, own, plan_.elements_in(in_range(size_bytes)), plan_);
}

void PartialSums::give(std::size_t offset_bytes, std::size_t size_bytes) const {
  if (!plan_.of_halves()) return;
  narrow_float32(reinterpret_cast<std::uint16_t*>(range_.data() + in_range(offset_bytes)),
                 reinterpret_cast<const float*>(sums_.data() + offset_bytes), size_bytes / sizeof(float), plan_.type);
}

}  // namespace gyre::collectives::internal
