#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "gyre/collectives/collectives.h"
#include "gyre/collectives/kernels.h"

namespace gyre::collectives::internal {

/// A Reduction in the terms of the kernels, which know no average.
struct ReductionPlan {
  DataType type = DataType::kFloat32;
  ReduceOperation operation = ReduceOperation::kSum;
  /// Its prescale is applied to each contribution when it is combined; the rest once, at the end.
  Scaling scaling{};
  /// In which partial sums stand and travel: float32 for 16-bit floats, so that they are rounded once, at the end; of
  /// scaled integers a type that holds them all.
  DataType sum_type = DataType::kFloat32;
  /// How elements travel over links: another format than kNative only for float32.
  WireFormat wire = WireFormat::kNative;

  std::size_t elements_in(std::size_t size_bytes) const { return size_bytes / size_of(type); }
  bool of_halves() const { return type == DataType::kFloat16 || type == DataType::kBfloat16; }
  bool widens() const { return sum_type != type; }
  /// Only what is done at the end.
  Scaling at_the_end() const { return {.prescale = 1.0, .factor = scaling.factor, .divisor = scaling.divisor}; }
};

/// Error(kInvalidArgument) for what reduction_problem() finds. `size`: ranks that contribute.
ReductionPlan plan_reduction(const Reduction& reduction, int size);

/// Combines contributions into a partial sum of the plan's sum_type, to which others are added. May be one of the
/// sources where that is the plan's type.
void add_up(std::byte* sums, std::span<const std::byte* const> contributions, std::size_t count,
            const ReductionPlan& plan);

/// Writes finished sums, scaled already, as elements of the plan's type. The two may only be the same memory where the
/// types are the same.
void narrow_sums(std::span<std::byte> elements, std::span<const std::byte> sums, const ReductionPlan& plan);

/// The partial sums over a range of a buffer: in the buffer itself, or, if the plan widens, in memory of their own.
class PartialSums {
 public:
  PartialSums(std::span<std::byte> range, const ReductionPlan& plan);

  std::span<std::byte> bytes() const { return sums_; }
  /// Makes the contribution that stands in the range there its partial sum. In bytes of the sums.
  void take(std::size_t offset_bytes, std::size_t size_bytes) const;
  /// Writes finished sums to the range, rounded to its type.
  void give(std::size_t offset_bytes, std::size_t size_bytes) const;
  /// A place in the range, from one in the sums.
  std::size_t in_range(std::size_t sums_bytes) const { return sums_bytes / widening_; }

 private:
  std::span<std::byte> range_;
  const ReductionPlan& plan_;
  std::size_t widening_;
  std::unique_ptr<std::byte[]> memory_;
  std::span<std::byte> sums_;
};

}  // namespace gyre::collectives::internal
