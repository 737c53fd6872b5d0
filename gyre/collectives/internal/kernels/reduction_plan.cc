#include "gyre/collectives/internal/kernels/reduction_plan.h"

#include <fmt/format.h>

#include <cmath>

#include "gyre/base/error.h"
#include "gyre/base/floating_point.h"
#include "gyre/collectives/kernels.h"

namespace gyre::collectives::internal {
namespace {

/// What a scale of every contribution amounts to after they are combined, for floats.
ReductionPlan fold_prescale(ReductionPlan plan, double prescale, int size) {
  switch (plan.operation) {
    case ReduceOperation::kSum:
    case ReduceOperation::kAverage: plan.scale *= prescale; break;
    case ReduceOperation::kProduct: plan.scale *= std::pow(prescale, size); break;
    case ReduceOperation::kMin:
    case ReduceOperation::kMax:
      plan.scale *= prescale;
      // A negative factor turns the order around.
      if (prescale < 0) {
        plan.operation = plan.operation == ReduceOperation::kMin ? ReduceOperation::kMax : ReduceOperation::kMin;
      }
      break;
  }
  return plan;
}

// Not inlined: see DefaultFloatingPoint.
[[gnu::noinline]] ReductionPlan make_plan(const Reduction& reduction, int size) {
  ReductionPlan plan{reduction.type, reduction.operation, 1.0, reduction.postscale};
  if (plan.type == DataType::kFloat32) plan.wire = reduction.wire;
  if (plan.operation == ReduceOperation::kAverage) {
    plan.operation = ReduceOperation::kSum;
    plan.scale /= size;
  }
  if (plan.type == DataType::kBoolean) {
    if (reduction.prescale != 1.0 || reduction.postscale != 1.0 || reduction.operation == ReduceOperation::kAverage) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("a tensor of type bool cannot be scaled or averaged (operation {}, prescale {}, postscale "
                      "{}); convert it to a number type first",
                      name(reduction.operation), reduction.prescale, reduction.postscale));
    }
    return plan;
  }
  if (is_floating_point(plan.type)) return fold_prescale(plan, reduction.prescale, size);
  plan.contribution_scale = reduction.prescale;
  return plan;
}

}  // namespace

ReductionPlan plan_reduction(const Reduction& reduction, int size) {
  const DefaultFloatingPoint state;
  return make_plan(reduction, size);
}

void scale_contribution(const ReductionPlan& plan, std::span<std::byte> buffer) {
  if (plan.contribution_scale == 1.0) return;
  scale_in_place(buffer.data(), plan.elements_in(buffer.size()), plan.type, plan.contribution_scale);
}

}  // namespace gyre::collectives::internal
