#include "gyre/collectives/internal/kernels/reduction_plan.h"

#include <array>
#include <cstdint>
#include <string>

#include "gyre/base/error.h"
#include "gyre/collectives/copy_bytes.h"
#include "gyre/collectives/internal/kernels/integer_scaling.h"

namespace gyre::collectives::internal {

ReductionPlan plan_reduction(const Reduction& reduction, int size) {
  if (const std::string problem = reduction_problem(reduction); !problem.empty()) {
    throw Error(ErrorCode::kInvalidArgument, problem);
  }
  const bool average = reduction.operation == ReduceOperation::kAverage;
  ReductionPlan plan{.type = reduction.type,
                     .operation = average ? ReduceOperation::kSum : reduction.operation,
                     .sum_type = reduction.type};
  if (plan.type == DataType::kFloat32) plan.wire = reduction.wire;
  if (plan.type == DataType::kBoolean) return plan;
  const int ranks = average ? (reduction.average_over > 0 ? reduction.average_over : size) : 1;
  if (is_floating_point(plan.type)) {
    plan.scaling = make_scaling(reduction.prescale, reduction.postscale, ranks);
    if (plan.of_halves()) plan.sum_type = DataType::kFloat32;
    return plan;
  }
  plan.scaling = {.prescale = reduction.prescale, .factor = reduction.postscale, .divisor = static_cast<double>(ranks)};
  if (plan.scaling != Scaling{}) {
    plan.sum_type = integer_sum_type(plan.type, plan.operation, plan.scaling, static_cast<std::size_t>(size));
  }
  return plan;
}

void add_up(std::byte* sums, std::span<const std::byte* const> contributions, std::size_t count,
            const ReductionPlan& plan) {
  const Scaling scaling{.prescale = plan.scaling.prescale};
  if (plan.of_halves()) {
    reduce_to_float32(reinterpret_cast<float*>(sums), contributions, count, plan.type, plan.operation, scaling);
  } else if (plan.widens()) {
    reduce_integers_to(sums, plan.sum_type, contributions, count, plan.type, plan.operation, scaling);
  } else {
    reduce(sums, contributions, count, plan.type, plan.operation, scaling);
  }
}

void narrow_sums(std::span<std::byte> elements, std::span<const std::byte> sums, const ReductionPlan& plan) {
  const std::size_t count = plan.elements_in(elements.size());
  if (plan.of_halves()) {
    narrow_float32(reinterpret_cast<std::uint16_t*>(elements.data()), reinterpret_cast<const float*>(sums.data()),
                   count, plan.type);
  } else if (plan.widens()) {
    const std::array<const std::byte*, 1> sources{sums.data()};
    reduce_integers_to(elements.data(), plan.type, sources, count, plan.sum_type, plan.operation);
  } else if (elements.data() != sums.data()) {
    copy_bytes(elements.data(), sums.data(), elements.size());
  }
}

PartialSums::PartialSums(std::span<std::byte> range, const ReductionPlan& plan)
    : range_(range), plan_(plan), widening_(size_of(plan.sum_type) / size_of(plan.type)), sums_(range) {
  if (!plan.widens()) return;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(range.size() * widening_);
  sums_ = {memory_.get(), range.size() * widening_};
}

void PartialSums::take(std::size_t offset_bytes, std::size_t size_bytes) const {
  if (!plan_.widens() && plan_.scaling.prescale == 1.0) return;  // It stands there.
  const std::array<const std::byte*, 1> own{range_.data() + in_range(offset_bytes)};
  add_up(sums_.data() + offset_bytes, own, plan_.elements_in(in_range(size_bytes)), plan_);
}

void PartialSums::give(std::size_t offset_bytes, std::size_t size_bytes) const {
  if (!plan_.widens()) return;
  narrow_sums(range_.subspan(in_range(offset_bytes), in_range(size_bytes)), sums_.subspan(offset_bytes, size_bytes),
              plan_);
}

}  // namespace gyre::collectives::internal
