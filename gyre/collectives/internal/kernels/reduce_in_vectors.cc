#include <array>
#include <cstdint>
#include <cstring>

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

// Scaling is done in the type of the vectors; integers come here with scale 1 only.
template <typename Vector>
Vector scaled(Vector value, Vector factor) {
  if constexpr (hwy::IsFloat<hn::TFromV<Vector>>()) {
    return hn::Mul(value, factor);
  } else {
    return value;
  }
}

// The elements from `begin` on, fewer than fill a vector: the same arithmetic over a padded copy.
template <typename Lanes, typename Operation>
void reduce_tail(const ReduceCall& call, std::size_t begin, typename Lanes::Vector factor) {
  using Storage = typename Lanes::Storage;
  constexpr std::size_t kMostLanes = hn::MaxLanes(typename Lanes::Tag());
  const std::size_t tail_bytes = (call.count - begin) * sizeof(Storage);
  const std::size_t offset_bytes = begin * sizeof(Storage);
  HWY_ALIGN Storage padded[kMostLanes] = {};
  std::memcpy(padded, call.sources[0] + offset_bytes, tail_bytes);
  auto sum = Lanes::load(padded);
  for (std::size_t source = 1; source < call.sources.size(); ++source) {
    std::memcpy(padded, call.sources[source] + offset_bytes, tail_bytes);
    sum = Operation::combine(sum, Lanes::load(padded));
  }
  Lanes::store(scaled(sum, factor), padded);
  for (std::byte* destination : call.destinations) std::memcpy(destination + offset_bytes, padded, tail_bytes);
}

template <typename Lanes, typename Operation, std::size_t kSources = 0, std::size_t kDestinations = 0>
void reduce_lanes(const ReduceCall& call) {
  using Storage = typename Lanes::Storage;
  const typename Lanes::Tag tag;
  const std::size_t lanes = hn::Lanes(tag);
  const auto factor = hn::Set(tag, static_cast<hn::TFromD<typename Lanes::Tag>>(call.scale));
  const Pointers<const Storage, kSources> sources(call.sources);
  const Pointers<Storage, kDestinations> destinations(call.destinations);
  const std::size_t source_count = sources.size();
  const std::size_t destination_count = destinations.size();
  std::size_t i = 0;
  // Four accumulators: two cache lines of every source at a time with 32-byte vectors. Measured and rejected: software
  // prefetch (no gain) and stores around the cache (a third slower in place, as the lines were just read).
  for (; i + 4 * lanes <= call.count; i += 4 * lanes) {
    const Storage* first = sources[0] + i;
    auto sum0 = Lanes::load(first);
    auto sum1 = Lanes::load(first + lanes);
    auto sum2 = Lanes::load(first + 2 * lanes);
    auto sum3 = Lanes::load(first + 3 * lanes);
    for (std::size_t source = 1; source < source_count; ++source) {
      const Storage* next = sources[source] + i;
      sum0 = Operation::combine(sum0, Lanes::load(next));
      sum1 = Operation::combine(sum1, Lanes::load(next + lanes));
      sum2 = Operation::combine(sum2, Lanes::load(next + 2 * lanes));
      sum3 = Operation::combine(sum3, Lanes::load(next + 3 * lanes));
    }
    sum0 = scaled(sum0, factor);
    sum1 = scaled(sum1, factor);
    sum2 = scaled(sum2, factor);
    sum3 = scaled(sum3, factor);
    for (std::size_t destination = 0; destination < destination_count; ++destination) {
      Storage* to = destinations[destination] + i;
      Lanes::store(sum0, to);
      Lanes::store(sum1, to + lanes);
      Lanes::store(sum2, to + 2 * lanes);
      Lanes::store(sum3, to + 3 * lanes);
    }
  }
  for (; i + lanes <= call.count; i += lanes) {
    auto sum = Lanes::load(sources[0] + i);
    for (std::size_t source = 1; source < source_count; ++source) {
      sum = Operation::combine(sum, Lanes::load(sources[source] + i));
    }
    sum = scaled(sum, factor);
    for (std::size_t destination = 0; destination < destination_count; ++destination) {
      Lanes::store(sum, destinations[destination] + i);
    }
  }
  if (i < call.count) reduce_tail<Lanes, Operation>(call, i, factor);
}

// Sums and products of signed integers wrap as those of unsigned ones do.
template <typename SumLanes, typename OrderLanes = SumLanes>
void reduce_type(const ReduceCall& call) {
  switch (call.operation) {
    case ReduceOperation::kSum: return reduce_lanes<SumLanes, Sum>(call);
    case ReduceOperation::kMin: return reduce_lanes<OrderLanes, Min>(call);
    case ReduceOperation::kMax: return reduce_lanes<OrderLanes, Max>(call);
    case ReduceOperation::kProduct:
      // 8 and 64 bits take the other path.
      if constexpr (hwy::IsFloat<hn::TFromD<typename SumLanes::Tag>>() || sizeof(typename SumLanes::Storage) == 2 ||
                    sizeof(typename SumLanes::Storage) == 4) {
        return reduce_lanes<SumLanes, Product>(call);
      }
      break;
    case ReduceOperation::kAverage: break;
  }
  GYRE_CHECK(call.operation == ReduceOperation::kSum);
}

void reduce_booleans(const ReduceCall& call) {
  const bool any = call.operation == ReduceOperation::kSum || call.operation == ReduceOperation::kMax;
  return any ? reduce_lanes<BooleanLanes, Max>(call) : reduce_lanes<BooleanLanes, Min>(call);
}

void reduce_float32(const ReduceCall& call) {
  using Lanes = NativeLanes<float>;
  const std::size_t sources = call.sources.size();
  const std::size_t destinations = call.destinations.size();
  if (call.operation == ReduceOperation::kSum) {
    // Known lengths are worth 40 % where the buffers lie in a cache; with one destination they are worth nothing.
    if (sources == 2 && destinations == 2) return reduce_lanes<Lanes, Sum, 2, 2>(call);
    if (sources == 4 && destinations == 4) return reduce_lanes<Lanes, Sum, 4, 4>(call);
  }
  return reduce_type<Lanes>(call);
}

void reduce(const ReduceCall& call) {
  switch (call.type) {
    case DataType::kUint8: return reduce_type<NativeLanes<std::uint8_t>>(call);
    case DataType::kInt8: return reduce_type<NativeLanes<std::uint8_t>, NativeLanes<std::int8_t>>(call);
    case DataType::kInt16: return reduce_type<NativeLanes<std::uint16_t>, NativeLanes<std::int16_t>>(call);
    case DataType::kInt32: return reduce_type<NativeLanes<std::uint32_t>, NativeLanes<std::int32_t>>(call);
    case DataType::kInt64: return reduce_type<NativeLanes<std::uint64_t>, NativeLanes<std::int64_t>>(call);
    case DataType::kFloat16: return reduce_type<Float16Lanes>(call);
    case DataType::kBfloat16: return reduce_type<Bfloat16Lanes>(call);
    case DataType::kFloat32: return reduce_float32(call);
    case DataType::kFloat64: return reduce_type<NativeLanes<double>>(call);
    case DataType::kBoolean: return reduce_booleans(call);
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
