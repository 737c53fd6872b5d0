#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gyre/engine/request.h"
#include "gyre/engine/statistics.h"

namespace gyre::engine {

struct PlanTensor {
  std::string name;
  DataType type = DataType::kFloat32;
  Shape shape;
  /// Tensors of one group and type share a bucket of their own, however large it is; -1: of no group.
  int group = -1;
};

struct PlanOptions {
  std::string name;  ///< Equal on all ranks; unique among the plans of the engine.
  ReduceOperation operation = ReduceOperation::kAverage;
  double prescale = 1.0;
  double postscale = 1.0;
  /// How float32 tensors travel between hosts; see collectives::Reduction. Between ranks of one host nothing travels,
  /// and nothing is rounded.
  WireFormat wire = WireFormat::kNative;
  /// What rounding to `wire` takes from a tensor on this rank is kept and added to its next contribution. Costs as much
  /// private memory as the arena. Without effect where nothing is rounded: one host, kNative, other types.
  bool error_feedback = false;
  /// The indices of the tensors in the order in which a backward pass produced them on this rank; those it did not
  /// produce may be left out, and follow in their own order. The fullest one, of the first rank that has it, is that by
  /// which every rank lays the plan out, so that a bucket fills, and leaves, while the next one is being computed. All
  /// empty: the order of the tensors.
  std::vector<std::size_t> ready_order{};
};

/// An optimizer's tensors, laid out once in buckets, so that a step needs no negotiation: bucket k of step s is
/// collective number s·K + k of the plan's lane, on every rank, by construction. A bucket starts when this rank's
/// tensors for it are in, while the others are still being computed.
///
/// Each tensor has a place in the arena (memory shared with the other ranks of the host), where the caller puts its
/// contribution and finds the reduced value.
///
/// Thread-safe: mark_ready may be called from any thread; finish_step from one at a time.
class Plan {
 public:
  virtual ~Plan() = default;

  virtual std::size_t tensor_count() const = 0;
  virtual std::size_t bucket_count() const = 0;

  /// This rank's place of tensor `index` in the arena; 64-byte aligned, the same for the life of the plan.
  /// The caller may write there from the end of finish_step until mark_ready(index), and read after finish_step.
  virtual std::span<std::byte> tensor(std::size_t index) = 0;

  /// The contribution to this step stands in tensor(index). Once per tensor and step: a second time is
  /// Error(kInvalidArgument). Never blocks. Throws when the plan has failed.
  virtual void mark_ready(std::size_t index) = 0;

  /// Copies a contribution of tensor(index).size() bytes there, around this core's caches, since other ranks read it
  /// next, and marks it ready.
  virtual void contribute(std::size_t index, std::span<const std::byte> contribution) = 0;

  virtual bool is_ready(std::size_t index) const = 0;

  /// Ends the step: tensors that were not marked contribute zeros; returns when every bucket is reduced.
  /// Throws what made the exchange fail; the plan stays failed then.
  virtual void finish_step() = 0;

  /// finish_step() for callers that must look up now and then: false when `patience` passed and buckets are still under
  /// way; call it again, and only it, to go on waiting.
  virtual bool finish_step_for(std::chrono::milliseconds patience) = 0;

  /// Steps finished so far.
  virtual std::uint64_t step() const = 0;

  /// How the steps went, on this rank. Any thread, any time.
  virtual PlanStatistics statistics() const = 0;
};

}  // namespace gyre::engine
