#include <cstdint>
#include <cstring>

#include "gyre/base/check.h"
#include "gyre/base/floating_point.h"
#include "gyre/collectives/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gyre/collectives/internal/kernels/convert_in_vectors.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "gyre/collectives/internal/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gyre::collectives::HWY_NAMESPACE {

// One element at a time for the rest: through a padded vector, so that it is converted by the same instructions.
template <typename Lanes>
void narrow(std::uint16_t* destination, const float* source, std::size_t count) {
  const typename Lanes::Tag tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) Lanes::store(hn::LoadU(tag, source + i), destination + i);
  if (i == count) return;
  HWY_ALIGN float padded[hn::MaxLanes(tag)] = {};
  HWY_ALIGN std::uint16_t narrowed[hn::MaxLanes(tag)];
  std::memcpy(padded, source + i, (count - i) * sizeof(float));
  Lanes::store(hn::LoadU(tag, padded), narrowed);
  std::memcpy(destination + i, narrowed, (count - i) * sizeof(std::uint16_t));
}

template <typename Lanes>
void widen(float* destination, const std::uint16_t* source, std::size_t count) {
  const typename Lanes::Tag tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Lanes::load(source + i), tag, destination + i);
  if (i == count) return;
  HWY_ALIGN std::uint16_t padded[hn::MaxLanes(tag)] = {};
  HWY_ALIGN float widened[hn::MaxLanes(tag)];
  std::memcpy(padded, source + i, (count - i) * sizeof(std::uint16_t));
  hn::StoreU(Lanes::load(padded), tag, widened);
  std::memcpy(destination + i, widened, (count - i) * sizeof(float));
}

// The value that comes back when it is narrowed and widened again.
template <typename Lanes>
void round_trip(float* values, std::size_t count) {
  const typename Lanes::Tag tag;
  const std::size_t lanes = hn::Lanes(tag);
  HWY_ALIGN std::uint16_t narrowed[hn::MaxLanes(tag)] = {};
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Lanes::store(hn::LoadU(tag, values + i), narrowed);
    hn::StoreU(Lanes::load(narrowed), tag, values + i);
  }
  if (i == count) return;
  HWY_ALIGN float padded[hn::MaxLanes(tag)] = {};
  std::memcpy(padded, values + i, (count - i) * sizeof(float));
  Lanes::store(hn::LoadU(tag, padded), narrowed);
  hn::StoreU(Lanes::load(narrowed), tag, padded);
  std::memcpy(values + i, padded, (count - i) * sizeof(float));
}

template <typename Lanes, typename Operation>
void accumulate_lanes(float* own, const std::uint16_t* arrived, std::size_t count, const Scaling& scaling) {
  const typename Lanes::Tag tag;
  const std::size_t lanes = hn::Lanes(tag);
  const Finish<Lanes> finish(scaling);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto sum = Operation::combine(Lanes::load(arrived + i), hn::LoadU(tag, own + i));
    hn::StoreU(finish(sum), tag, own + i);
  }
  if (i == count) return;
  HWY_ALIGN float padded[hn::MaxLanes(tag)] = {};
  HWY_ALIGN std::uint16_t padded_arrived[hn::MaxLanes(tag)] = {};
  std::memcpy(padded, own + i, (count - i) * sizeof(float));
  std::memcpy(padded_arrived, arrived + i, (count - i) * sizeof(std::uint16_t));
  const auto sum = Operation::combine(Lanes::load(padded_arrived), hn::LoadU(tag, padded));
  hn::StoreU(finish(sum), tag, padded);
  std::memcpy(own + i, padded, (count - i) * sizeof(float));
}

template <typename Lanes>
void accumulate_from(float* own, const std::uint16_t* arrived, std::size_t count, ReduceOperation operation,
                     const Scaling& scaling) {
  switch (operation) {
    case ReduceOperation::kSum: return accumulate_lanes<Lanes, Sum>(own, arrived, count, scaling);
    case ReduceOperation::kMin: return accumulate_lanes<Lanes, Min>(own, arrived, count, scaling);
    case ReduceOperation::kMax: return accumulate_lanes<Lanes, Max>(own, arrived, count, scaling);
    case ReduceOperation::kProduct: return accumulate_lanes<Lanes, Product>(own, arrived, count, scaling);
    case ReduceOperation::kAverage: break;
  }
  GYRE_CHECK(operation == ReduceOperation::kSum);
}

void narrow_to(std::uint16_t* destination, const float* source, std::size_t count, DataType half) {
  return half == DataType::kFloat16 ? narrow<Float16Lanes>(destination, source, count)
                                    : narrow<Bfloat16Lanes>(destination, source, count);
}

void widen_from(float* destination, const std::uint16_t* source, std::size_t count, DataType half) {
  return half == DataType::kFloat16 ? widen<Float16Lanes>(destination, source, count)
                                    : widen<Bfloat16Lanes>(destination, source, count);
}

void round_to(float* values, std::size_t count, DataType half) {
  return half == DataType::kFloat16 ? round_trip<Float16Lanes>(values, count)
                                    : round_trip<Bfloat16Lanes>(values, count);
}

void accumulate_half(float* own, const std::uint16_t* arrived, std::size_t count, DataType half,
                     ReduceOperation operation, const Scaling& scaling) {
  return half == DataType::kFloat16 ? accumulate_from<Float16Lanes>(own, arrived, count, operation, scaling)
                                    : accumulate_from<Bfloat16Lanes>(own, arrived, count, operation, scaling);
}

}  // namespace gyre::collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gyre::collectives {
namespace {

HWY_EXPORT(narrow_to);
HWY_EXPORT(widen_from);
HWY_EXPORT(round_to);
HWY_EXPORT(accumulate_half);

void check_half(DataType half) { GYRE_CHECK((half == DataType::kFloat16 || half == DataType::kBfloat16)); }

}  // namespace

void narrow_float32(std::uint16_t* destination, const float* source, std::size_t count, DataType half) {
  check_half(half);
  const DefaultFloatingPoint state;
  HWY_DYNAMIC_DISPATCH(narrow_to)(destination, source, count, half);
}

void widen_to_float32(float* destination, const std::uint16_t* source, std::size_t count, DataType half) {
  check_half(half);
  const DefaultFloatingPoint state;
  HWY_DYNAMIC_DISPATCH(widen_from)(destination, source, count, half);
}

void round_float32(float* values, std::size_t count, DataType half) {
  check_half(half);
  const DefaultFloatingPoint state;
  HWY_DYNAMIC_DISPATCH(round_to)(values, count, half);
}

void accumulate_narrowed(float* own, const std::uint16_t* arrived, std::size_t count, DataType half,
                         ReduceOperation operation, const Scaling& scaling) {
  check_half(half);
  GYRE_CHECK(scaling.prescale == 1.0);
  const DefaultFloatingPoint state;
  HWY_DYNAMIC_DISPATCH(accumulate_half)(own, arrived, count, half, operation, scaling);
}

}  // namespace gyre::collectives
#endif
