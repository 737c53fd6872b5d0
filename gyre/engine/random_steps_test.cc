// Whatever each rank contributes, leaves out or submits, and in whatever order, the sums are right and nobody hangs:
// random cases, each with its seed; a thousand of them with `./dev test --long`.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "gyre/base/effort_test_support.h"
#include "gyre/base/random.h"
#include "gyre/engine/runtime.h"

namespace gyre::engine {
namespace {

constexpr std::uint64_t kRuntimes = 30;
constexpr std::uint64_t kRuntimesOfALongRun = 100;
constexpr int kCasesPerRuntime = 10;
constexpr std::chrono::seconds kPatience{60};

/// Small whole numbers, so that every order of adding them gives the same float.
float contribution(std::uint64_t seed, std::uint64_t step, std::uint64_t tensor, int rank) {
  return static_cast<float>(Random(seed + step, tensor * 64 + static_cast<std::uint64_t>(rank)).below(100));
}

/// What all ranks know of a case.
struct Case {
  std::uint64_t seed = 0;
  int size = 0;
  std::vector<PlanTensor> tensors{};
  std::uint64_t operation_count = 0;  ///< Named operations beside the plan, in every step.
  std::uint64_t step_count = 0;
  bool alternates = false;  ///< Between two step patterns; otherwise each step has one of its own.

  std::uint64_t pattern(std::uint64_t step) const { return seed * 1000 + (alternates ? step % 2 : step); }
  bool hands_in(std::uint64_t step, std::uint64_t tensor, int rank) const {
    const auto stream = static_cast<std::uint64_t>(rank) * 1000 + tensor;
    return Random(pattern(step), stream).below(5) > 0;
  }
  /// The order in which a rank hands its tensors in and submits its operations.
  std::vector<std::uint64_t> order(std::uint64_t step, int rank) const {
    return permutation(tensors.size() + operation_count, pattern(step) + 7, static_cast<std::uint64_t>(rank));
  }
  float expected(std::uint64_t step, std::uint64_t tensor) const {
    float sum = 0;
    for (int rank = 0; rank < size; ++rank) {
      if (hands_in(step, tensor, rank)) sum += contribution(seed, step, tensor, rank);
    }
    return sum;
  }
};

Case make_case(std::uint64_t seed, int size) {
  Random random(seed);
  Case made{.seed = seed, .size = size};
  const std::uint64_t tensor_count = 1 + random.below(9);
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    const auto elements = static_cast<std::int64_t>(random.below(3) == 0 ? random.below(3000) : random.below(40));
    made.tensors.push_back({"t" + std::to_string(i), DataType::kFloat32, {elements}});
  }
  made.operation_count = random.below(4);
  made.step_count = 2 + random.below(4);
  made.alternates = random.below(2) == 0;
  return made;
}

std::span<float> floats(Plan& plan, std::size_t index) {
  const auto bytes = plan.tensor(index);
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

/// A named sum beside the plan.
struct Operation {
  std::vector<float> values;
  Handle handle;
};

Operation submit(Runtime& runtime, const Case& one, std::uint64_t step, std::uint64_t number) {
  Operation operation;
  const auto count = static_cast<std::int64_t>(1 + 50 * number);
  operation.values.assign(static_cast<std::size_t>(count), static_cast<float>(runtime.rank() + 1));
  const auto bytes = std::as_writable_bytes(std::span(operation.values));
  operation.handle = runtime.engine().submit(
      {.name = "case " + std::to_string(one.seed) + " step " + std::to_string(step) + " " + std::to_string(number),
       .signature = {.kind = OperationKind::kAllreduce, .type = DataType::kFloat32, .shape = {count}},
       .input = bytes,
       .output = bytes});
  return operation;
}

void finish(Runtime& runtime, Plan& plan) {
  if (plan.finish_step_for(kPatience)) return;
  runtime.group().abort(Error(ErrorCode::kAborted, "a step hangs"));
  throw Error(ErrorCode::kTimeout, "a step hangs");
}

void run_step(Runtime& runtime, Plan& plan, const Case& one, std::uint64_t step) {
  std::vector<Operation> operations;
  operations.reserve(one.operation_count);
  for (const std::uint64_t item : one.order(step, runtime.rank())) {
    if (item >= one.tensors.size()) {
      operations.push_back(submit(runtime, one, step, item - one.tensors.size()));
    } else if (one.hands_in(step, item, runtime.rank())) {
      for (float& value : floats(plan, item)) value = contribution(one.seed, step, item, runtime.rank());
      plan.mark_ready(item);
    }
  }
  finish(runtime, plan);
  for (std::uint64_t tensor = 0; tensor < one.tensors.size(); ++tensor) {
    for (const float value : floats(plan, tensor)) {
      ASSERT_EQ(value, one.expected(step, tensor)) << "tensor " << tensor << " in step " << step;
    }
  }
  for (const Operation& operation : operations) {
    ASSERT_TRUE(operation.handle.wait_for(kPatience)) << "an operation hangs in step " << step;
    const int sum = one.size * (one.size + 1) / 2;
    for (const float value : operation.values) ASSERT_EQ(value, sum) << "in step " << step;
  }
}

void run_case(Runtime& runtime, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Case one = make_case(seed, runtime.size());
  PlanOptions options{.name = "p", .operation = ReduceOperation::kSum};
  // Every rank has another idea of the order; rank 0's counts.
  for (const std::uint64_t item : one.order(0, runtime.rank())) {
    if (item < one.tensors.size()) options.ready_order.push_back(item);
  }
  const auto plan = runtime.engine().make_plan(one.tensors, options);
  for (std::uint64_t step = 0; step < one.step_count; ++step) run_step(runtime, *plan, one, step);
}

TEST(RandomStepsTest, random_cases_are_right_and_none_hangs) {
  const std::uint64_t first = seed_of_day();
  const std::uint64_t count = is_long_test() ? kRuntimesOfALongRun : kRuntimes;
  for (std::uint64_t number = first; number < first + count; ++number) {
    Random random(number, 99);
    const int size = 2 + static_cast<int>(random.below(3));
    RuntimeOptions options;
    const std::array<std::size_t, 4> fusion_bytes = {0, 300, 5000, kDefaultFusionBytes};
    options.engine.fusion_bytes = fusion_bytes[random.below(fusion_bytes.size())];
    std::vector<std::string> hosts;
    if (random.below(4) == 0) {
      for (int rank = 0; rank < size; ++rank) hosts.push_back("h" + std::to_string(random.below(2)));
    }
    run_ranks(
        size,
        [&](Runtime& runtime) {
          for (std::uint64_t i = 0; i < kCasesPerRuntime; ++i) run_case(runtime, 1000 * number + i);
        },
        options, hosts);
  }
}

}  // namespace
}  // namespace gyre::engine
