#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gyre/base/check.h"
#include "gyre/collectives/internal/kernels/reduce_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gyre/collectives/internal/kernels/reduce_in_vectors.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "gyre/collectives/internal/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gyre::collectives::HWY_NAMESPACE {

using internal::ReduceCall;

// A list of pointers whose length the compiler knows, so that they stay in registers; kLength 0: any length.
template <typename Storage, std::size_t kLength>
class Pointers {
 public:
  template <typename Byte>
  explicit Pointers(std::span<Byte* const> pointers) {
    for (std::size_t i = 0; i < kLength; ++i) pointers_[i] = reinterpret_cast<Storage*>(pointers[i]);
  }
  static constexpr std::size_t size() { return kLength; }
  Storage* operator[](std::size_t index) const { return pointers_[index]; }

 private:
  std::array<Storage*, kLength> pointers_;
};

template <typename Storage>
class Pointers<Storage, 0> {
  using Byte = std::conditional_t<std::is_const_v<Storage>, const std::byte, std::byte>;

 public:
  explicit Pointers(std::span<Byte* const> pointers) : pointers_(pointers) {}
  std::size_t size() const { return pointers_.size(); }
  Storage* operator[](std::size_t index) const { return reinterpret_cast<Storage*>(pointers_[index]); }

 private:
  std::span<Byte* const> pointers_;
};

// A source as it is combined.
template <typename Lanes, bool kPrescaled>
struct Source {
  using Vector = typename Lanes::Vector;

  explicit Source(const Scaling& scaling)
      : factor(hn::Set(typename Lanes::Tag(), static_cast<hn::TFromV<Vector>>(scaling.prescale))) {}

  Vector load(const typename Lanes::Storage* from) const {
    if constexpr (kPrescaled) {
      return hn::Mul(Lanes::load(from), factor);
    } else {
      return Lanes::load(from);
    }
  }

  Vector factor;
};

// The elements from `begin` on, fewer than fill a vector: the same arithmetic over a padded copy.
template <typename Lanes, typename Operation, typename Result, bool kPrescaled>
void reduce_tail(const ReduceCall& call, std::size_t begin, const Source<Lanes, kPrescaled>& from,
                 const Finish<Lanes>& finish) {
  using Storage = typename Lanes::Storage;
  using Stored = typename Result::Storage;
  constexpr std::size_t kMostLanes = hn::MaxLanes(typename Lanes::Tag());
  const std::size_t tail_bytes = (call.count - begin) * sizeof(Storage);
  const std::size_t offset_bytes = begin * sizeof(Storage);
  HWY_ALIGN Storage padded[kMostLanes] = {};
  std::memcpy(padded, call.sources[0] + offset_bytes, tail_bytes);
  auto sum = from.load(padded);
  for (std::size_t source = 1; source < call.sources.size(); ++source) {
    std::memcpy(padded, call.sources[source] + offset_bytes, tail_bytes);
    sum = Operation::combine(sum, from.load(padded));
  }
  HWY_ALIGN Stored results[kMostLanes] = {};
  Result::store(finish(sum), results);
  for (std::byte* destination : call.destinations) {
    std::memcpy(destination + begin * sizeof(Stored), results, (call.count - begin) * sizeof(Stored));
  }
}

template <typename Lanes, typename Operation, typename Result, bool kPrescaled, std::size_t kSources = 0,
          std::size_t kDestinations = 0>
void reduce_lanes(const ReduceCall& call) {
  using Storage = typename Lanes::Storage;
  using Stored = typename Result::Storage;
  const typename Lanes::Tag tag;
  const std::size_t lanes = hn::Lanes(tag);
  const Source<Lanes, kPrescaled> from(call.scaling);
  const Finish<Lanes> finish(call.scaling);
  const Pointers<const Storage, kSources> sources(call.sources);
  const Pointers<Stored, kDestinations> destinations(call.destinations);
  const std::size_t source_count = sources.size();
  const std::size_t destination_count = destinations.size();
  std::size_t i = 0;
  // Four accumulators: two cache lines of every source at a time with 32-byte vectors. Measured and rejected: software
  // prefetch (no gain) and stores around the cache (a third slower in place, as the lines were just read).
  for (; i + 4 * lanes <= call.count; i += 4 * lanes) {
    const Storage* first = sources[0] + i;
    auto sum0 = from.load(first);
    auto sum1 = from.load(first + lanes);
    auto sum2 = from.load(first + 2 * lanes);
    auto sum3 = from.load(first + 3 * lanes);
    for (std::size_t source = 1; source < source_count; ++source) {
      const Storage* next = sources[source] + i;
      sum0 = Operation::combine(sum0, from.load(next));
      sum1 = Operation::combine(sum1, from.load(next + lanes));
      sum2 = Operation::combine(sum2, from.load(next + 2 * lanes));
      sum3 = Operation::combine(sum3, from.load(next + 3 * lanes));
    }
    sum0 = finish(sum0);
    sum1 = finish(sum1);
    sum2 = finish(sum2);
    sum3 = finish(sum3);
    for (std::size_t destination = 0; destination < destination_count; ++destination) {
      Stored* to = destinations[destination] + i;
      Result::store(sum0, to);
      Result::store(sum1, to + lanes);
      Result::store(sum2, to + 2 * lanes);
      Result::store(sum3, to + 3 * lanes);
    }
  }
  for (; i + lanes <= call.count; i += lanes) {
    auto sum = from.load(sources[0] + i);
    for (std::size_t source = 1; source < source_count; ++source) {
      sum = Operation::combine(sum, from.load(sources[source] + i));
    }
    sum = finish(sum);
    for (std::size_t destination = 0; destination < destination_count; ++destination) {
      Result::store(sum, destinations[destination] + i);
    }
  }
  if (i < call.count) reduce_tail<Lanes, Operation, Result>(call, i, from, finish);
}

template <typename Lanes, typename Operation, typename Result>
void reduce_prescaled(const ReduceCall& call) {
  if constexpr (hwy::IsFloat<hn::TFromD<typename Lanes::Tag>>()) {
    if (call.scaling.prescale != 1.0) return reduce_lanes<Lanes, Operation, Result, true>(call);
  }
  return reduce_lanes<Lanes, Operation, Result, false>(call);
}

// Sums and products of signed integers wrap as those of unsigned ones do.
template <typename SumLanes, typename OrderLanes = SumLanes, typename Result = SumLanes>
void reduce_type(const ReduceCall& call) {
  using OrderResult = std::conditional_t<std::is_same_v<SumLanes, Result>, OrderLanes, Result>;
  switch (call.operation) {
    case ReduceOperation::kSum: return reduce_prescaled<SumLanes, Sum, Result>(call);
    case ReduceOperation::kMin: return reduce_prescaled<OrderLanes, Min, OrderResult>(call);
    case ReduceOperation::kMax: return reduce_prescaled<OrderLanes, Max, OrderResult>(call);
    case ReduceOperation::kProduct:
      // 8 and 64 bits take the other path.
      if constexpr (hwy::IsFloat<hn::TFromD<typename SumLanes::Tag>>() || sizeof(typename SumLanes::Storage) == 2 ||
                    sizeof(typename SumLanes::Storage) == 4) {
        return reduce_prescaled<SumLanes, Product, Result>(call);
      }
      break;
    case ReduceOperation::kAverage: break;
  }
  GYRE_CHECK(call.operation == ReduceOperation::kSum);
}

void reduce_booleans(const ReduceCall& call) {
  const bool any = call.operation == ReduceOperation::kSum || call.operation == ReduceOperation::kMax;
  return any ? reduce_prescaled<BooleanLanes, Max, BooleanLanes>(call)
             : reduce_prescaled<BooleanLanes, Min, BooleanLanes>(call);
}

void reduce_float32(const ReduceCall& call) {
  using Lanes = NativeLanes<float>;
  const std::size_t sources = call.sources.size();
  const std::size_t destinations = call.destinations.size();
  if (call.operation == ReduceOperation::kSum && call.scaling.prescale == 1.0) {
    // Known lengths are worth 40 % where the buffers lie in a cache; with one destination they are worth nothing.
    if (sources == 2 && destinations == 2) return reduce_lanes<Lanes, Sum, Lanes, false, 2, 2>(call);
    if (sources == 4 && destinations == 4) return reduce_lanes<Lanes, Sum, Lanes, false, 4, 4>(call);
  }
  return reduce_type<Lanes>(call);
}

template <typename Lanes>
void reduce_halves(const ReduceCall& call) {
  if (call.result == DataType::kFloat32) return reduce_type<Lanes, Lanes, NativeLanes<float>>(call);
  return reduce_type<Lanes>(call);
}

void reduce(const ReduceCall& call) {
  switch (call.type) {
    case DataType::kUint8: return reduce_type<NativeLanes<std::uint8_t>>(call);
    case DataType::kInt8: return reduce_type<NativeLanes<std::uint8_t>, NativeLanes<std::int8_t>>(call);
    case DataType::kInt16: return reduce_type<NativeLanes<std::uint16_t>, NativeLanes<std::int16_t>>(call);
    case DataType::kInt32: return reduce_type<NativeLanes<std::uint32_t>, NativeLanes<std::int32_t>>(call);
    case DataType::kInt64: return reduce_type<NativeLanes<std::uint64_t>, NativeLanes<std::int64_t>>(call);
    case DataType::kFloat16: return reduce_halves<Float16Lanes>(call);
    case DataType::kBfloat16: return reduce_halves<Bfloat16Lanes>(call);
    case DataType::kFloat32: return reduce_float32(call);
    case DataType::kFloat64: return reduce_type<NativeLanes<double>>(call);
    case DataType::kBoolean: return reduce_booleans(call);
    case DataType::kInt128: GYRE_CHECK(name(call.type) == "a type with vectors");
  }
}

}  // namespace gyre::collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gyre::collectives {
namespace {
HWY_EXPORT(reduce);
}  // namespace

void internal::reduce_in_vectors(const ReduceCall& call) { HWY_DYNAMIC_DISPATCH(reduce)(call); }

}  // namespace gyre::collectives
#endif
