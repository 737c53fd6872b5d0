// Every sum of the system goes through these loops: each type, operation, length, tail and instruction set is compared
// with a scalar reference, bit for bit.
#include "gyre/collectives/kernels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gyre/base/random.h"
#include "gyre/collectives/internal/kernels/kernels_test_support.h"

namespace gyre::collectives {
namespace {

using Buffer = std::vector<std::byte>;

// One element of each type: how the reference reads, combines and writes it.
template <typename Stored, typename Reckoned>
struct Native {
  using Element = Stored;
  static Reckoned read(Stored value) { return static_cast<Reckoned>(value); }
  static Stored write(Reckoned value) { return static_cast<Stored>(value); }
};
struct Half {
  using Element = std::uint16_t;
  static float read(std::uint16_t bits) { return float16_value(bits); }
  static std::uint16_t write(float value) { return float16_bits(value); }
};
struct Brain {
  using Element = std::uint16_t;
  static float read(std::uint16_t bits) { return bfloat16_value(bits); }
  static std::uint16_t write(float value) { return bfloat16_bits(value); }
};

template <typename T>
T reference_combine(T left, T right, ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::kSum: return left + right;
    case ReduceOperation::kProduct: return left * right;
    case ReduceOperation::kMin:
      if (left == right) return std::signbit(left) ? left : right;
      return left != left ? left : right != right || right < left ? right : left;
    default:
      if (left == right) return std::signbit(left) ? right : left;
      return left != left ? left : right != right || left < right ? right : left;
  }
}
// Wide enough for the sums and products of three short integers; beyond it wraps, as the types themselves do.
using Wide = __int128;

Wide reference_combine(Wide left, Wide right, ReduceOperation operation) {
  Wide result = 0;
  if (operation == ReduceOperation::kSum) {
    static_cast<void>(__builtin_add_overflow(left, right, &result));
  } else if (operation == ReduceOperation::kProduct) {
    result = static_cast<Wide>(static_cast<unsigned __int128>(left) * static_cast<unsigned __int128>(right));
  } else {
    result = (operation == ReduceOperation::kMin) == (right < left) ? right : left;
  }
  return result;
}

template <typename Stored>
Stored reference_scale(Wide value, const Scaling& scaling) {
  if (scaling == Scaling{}) return static_cast<Stored>(value);
  // The factors are whole, or reciprocals of whole numbers.
  const double divisor = std::abs(scaling.factor) < 1.0 ? std::round(1.0 / scaling.factor) : scaling.divisor;
  const Wide multiplied = std::abs(scaling.factor) < 1.0 ? value : value * static_cast<Wide>(scaling.factor);
  return static_cast<Stored>(std::clamp<Wide>(multiplied / static_cast<Wide>(divisor),
                                              std::numeric_limits<Stored>::min(), std::numeric_limits<Stored>::max()));
}
template <typename Number>
Number reference_finish(Number value, const Scaling& scaling) {
  return scaling.divisor != 1.0 ? value / static_cast<Number>(scaling.divisor)
                                : value * static_cast<Number>(scaling.factor);
}

template <typename Kind>
Buffer reference_of(const std::vector<Buffer>& sources, ReduceOperation operation, const Scaling& scaling) {
  using Element = typename Kind::Element;
  Buffer result(sources[0].size());
  for (std::size_t offset = 0; offset < result.size(); offset += sizeof(Element)) {
    Element element;
    std::memcpy(&element, sources[0].data() + offset, sizeof(Element));
    using Number = decltype(Kind::read(element));
    const auto source_value = [&](Element read) {
      const Number value = Kind::read(read);
      return scaling.prescale == 1.0 ? value : value * static_cast<Number>(scaling.prescale);
    };
    auto sum = source_value(element);
    for (std::size_t source = 1; source < sources.size(); ++source) {
      std::memcpy(&element, sources[source].data() + offset, sizeof(Element));
      sum = reference_combine(sum, source_value(element), operation);
    }
    if constexpr (std::is_same_v<decltype(sum), Wide>) {
      element = reference_scale<Element>(sum, scaling);
    } else {
      element = Kind::write(reference_finish(sum, scaling));
    }
    std::memcpy(result.data() + offset, &element, sizeof(Element));
  }
  return result;
}

Buffer boolean_reference(const std::vector<Buffer>& sources, ReduceOperation operation) {
  const bool any = operation == ReduceOperation::kSum || operation == ReduceOperation::kMax;
  Buffer result(sources[0].size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    bool value = !any;
    for (const Buffer& source : sources) {
      const bool mine = source[i] != std::byte{0};
      value = any ? value || mine : value && mine;
    }
    result[i] = std::byte{value};
  }
  return result;
}

Buffer reference(const std::vector<Buffer>& sources, DataType type, ReduceOperation operation, const Scaling& scaling) {
  switch (type) {
    case DataType::kUint8: return reference_of<Native<std::uint8_t, Wide>>(sources, operation, scaling);
    case DataType::kInt8: return reference_of<Native<std::int8_t, Wide>>(sources, operation, scaling);
    case DataType::kInt16: return reference_of<Native<std::int16_t, Wide>>(sources, operation, scaling);
    case DataType::kInt32: return reference_of<Native<std::int32_t, Wide>>(sources, operation, scaling);
    case DataType::kInt64: return reference_of<Native<std::int64_t, Wide>>(sources, operation, scaling);
    case DataType::kFloat16: return reference_of<Half>(sources, operation, scaling);
    case DataType::kBfloat16: return reference_of<Brain>(sources, operation, scaling);
    case DataType::kFloat32: return reference_of<Native<float, float>>(sources, operation, scaling);
    case DataType::kFloat64: return reference_of<Native<double, double>>(sources, operation, scaling);
    case DataType::kBoolean: return boolean_reference(sources, operation);
    case DataType::kInt128: break;  // No tensor has it.
  }
  return {};
}

template <typename T>
void put(Buffer& buffer, std::size_t index, T value) {
  std::memcpy(buffer.data() + index * sizeof(T), &value, sizeof(T));
}
// Floats of moderate size, so that sums round but do not overflow; integers and booleans with all bits random.
Buffer random_elements(Random& random, std::size_t count, DataType type) {
  Buffer buffer(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const float value = random.uniform(-4.0f, 4.0f);
    switch (type) {
      case DataType::kFloat16: put(buffer, i, float16_bits(value)); break;
      case DataType::kBfloat16: put(buffer, i, bfloat16_bits(value)); break;
      case DataType::kFloat32: put(buffer, i, value); break;
      case DataType::kFloat64: put(buffer, i, static_cast<double>(value) * 1.0000000123); break;
      case DataType::kBoolean: put(buffer, i, static_cast<std::uint8_t>(random.below(3))); break;
      default:
        for (std::size_t byte = 0; byte < size_of(type); ++byte) {
          buffer[i * size_of(type) + byte] = static_cast<std::byte>(random.below(256));
        }
    }
  }
  return buffer;
}

std::vector<Buffer> random_sources(Random& random, std::size_t sources, std::size_t count, DataType type) {
  std::vector<Buffer> result;
  for (std::size_t source = 0; source < sources; ++source) result.push_back(random_elements(random, count, type));
  return result;
}

// Copies of the sources, each off every alignment by its own number of bytes and fenced on both sides.
class MisalignedCopies {
 public:
  static constexpr std::size_t kFenceBytes = 64;
  static constexpr std::byte kFence{0xa5};

  explicit MisalignedCopies(const std::vector<Buffer>& originals) {
    for (std::size_t i = 0; i < originals.size(); ++i) {
      blocks_.emplace_back(originals[i].size() + 2 * kFenceBytes + 8, kFence);
      starts_.push_back(kFenceBytes + i % 8);
      sizes_.push_back(originals[i].size());
      std::copy(originals[i].begin(), originals[i].end(), blocks_.back().data() + starts_.back());
    }
  }
  std::vector<std::byte*> pointers() {
    std::vector<std::byte*> result;
    for (std::size_t i = 0; i < blocks_.size(); ++i) result.push_back(blocks_[i].data() + starts_[i]);
    return result;
  }
  std::vector<const std::byte*> const_pointers() {
    const auto all = pointers();
    return {all.begin(), all.end()};
  }
  Buffer contents(std::size_t index) const {
    const std::byte* begin = blocks_[index].data() + starts_[index];
    return {begin, begin + sizes_[index]};
  }
  bool fences_stand() const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      for (std::size_t at = 0; at < blocks_[i].size(); ++at) {
        const bool inside = at >= starts_[i] && at < starts_[i] + sizes_[i];
        if (!inside && blocks_[i][at] != kFence) return false;
      }
    }
    return true;
  }

 private:
  std::vector<Buffer> blocks_;
  std::vector<std::size_t> starts_;
  std::vector<std::size_t> sizes_;
};

constexpr ReduceOperation kOperations[] = {ReduceOperation::kSum, ReduceOperation::kMin, ReduceOperation::kMax,
                                           ReduceOperation::kProduct};

std::string text_of(DataType type, ReduceOperation operation, std::size_t sources, std::size_t count,
                    const Scaling& scaling) {
  return fmt::format("{} {} of {} sources, {} elements, prescale {}, factor {}, divisor {}, seed {}", name(type),
                     name(operation), sources, count, scaling.prescale, scaling.factor, scaling.divisor, kSeed);
}

void check_reduction(Random& random, DataType type, ReduceOperation operation, std::size_t sources, std::size_t count,
                     const Scaling& scaling = {}) {
  SCOPED_TRACE(text_of(type, operation, sources, count, scaling));
  const std::vector<Buffer> originals = random_sources(random, sources, count, type);
  const Buffer expected = reference(originals, type, operation, scaling);

  MisalignedCopies in_place(originals);
  reduce_to_many(in_place.pointers(), in_place.const_pointers(), count, type, operation, scaling);
  for (std::size_t i = 0; i < sources; ++i) ASSERT_EQ(in_place.contents(i), expected) << "destination " << i;
  ASSERT_TRUE(in_place.fences_stand());

  MisalignedCopies copies(originals);
  MisalignedCopies result({Buffer(expected.size())});
  reduce(result.pointers()[0], copies.const_pointers(), count, type, operation, scaling);
  ASSERT_EQ(result.contents(0), expected);
  ASSERT_TRUE(result.fences_stand());
  for (std::size_t i = 0; i < sources; ++i) ASSERT_EQ(copies.contents(i), originals[i]) << "source " << i;

  reduce(copies.pointers()[sources - 1], copies.const_pointers(), count, type, operation, scaling);
  ASSERT_EQ(copies.contents(sources - 1), expected) << "in place of the last source";
}

const Scaling kScalings[] = {{.factor = 0.5},
                             {.factor = 1.0 / 3},
                             {.factor = 0.25},
                             {.factor = -1.0},
                             {.factor = 2.0},
                             {.factor = 1.7},
                             {.divisor = 3.0},
                             {.divisor = 49.0},
                             {.divisor = 64.0},
                             {.prescale = 0.3},
                             {.prescale = -0.75, .factor = 1.7},
                             {.prescale = 0.1, .divisor = 7.0}};

class EveryType : public testing::TestWithParam<DataType> {};

TEST_P(EveryType, equals_the_scalar_reference_for_every_operation_number_of_sources_and_tail) {
  for_each_instruction_set([&] {
    Random random(kSeed, static_cast<std::uint64_t>(GetParam()));
    for (const ReduceOperation operation : kOperations) {
      for (std::size_t sources = 1; sources <= 8; ++sources) {
        for (std::size_t count = 0; count <= 130; ++count) {
          // Every length with one number of sources in turn, odd ones with all.
          if (count % 2 == 0 && count % 8 != sources - 1) continue;
          check_reduction(random, GetParam(), operation, sources, count);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST_P(EveryType, scales_each_source_before_and_the_result_after) {
  if (GetParam() == DataType::kBoolean) {
    Random random(kSeed);
    EXPECT_DEATH(check_reduction(random, GetParam(), ReduceOperation::kSum, 2, 1, {.factor = 0.5}), "scaling");
    return;
  }
  for_each_instruction_set([&] {
    Random random(kSeed, 100 + static_cast<std::uint64_t>(GetParam()));
    for (const ReduceOperation operation : kOperations) {
      for (const Scaling& scaling : kScalings) {
        for (const std::size_t count : {1u, 31u, 127u, 1025u}) {
          // numbers_integers_test.cc has a reference for more.
          if (GetParam() == DataType::kInt64 && operation == ReduceOperation::kProduct) continue;
          if (!is_floating_point(GetParam()) && (scaling.prescale != 1.0 || scaling.factor == 1.7)) continue;
          check_reduction(random, GetParam(), operation, 3, count, scaling);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST_P(EveryType, parts_of_a_sum_of_16_bit_floats_are_not_rounded) {
  const bool is_half = GetParam() == DataType::kFloat16;
  if (!is_half && GetParam() != DataType::kBfloat16) return;
  for_each_instruction_set([&] {
    Random random(kSeed, 500 + static_cast<std::uint64_t>(GetParam()));
    for (const std::size_t count : {0u, 1u, 31u, 127u, 1025u}) {
      const std::vector<Buffer> originals = random_sources(random, 3, count, GetParam());
      MisalignedCopies copies(originals);
      for (const Scaling& scaling : kScalings) {
        std::vector<float> sums(count, -1.0F);
        reduce_to_float32(sums.data(), copies.const_pointers(), count, GetParam(), ReduceOperation::kSum, scaling);
        for (std::size_t i = 0; i < count; ++i) {
          float sum = 0;
          for (std::size_t source = 0; source < 3; ++source) {
            std::uint16_t bits = 0;
            std::memcpy(&bits, originals[source].data() + 2 * i, sizeof bits);
            const float read = is_half ? float16_value(bits) : bfloat16_value(bits);
            const float value = scaling.prescale == 1.0 ? read : read * static_cast<float>(scaling.prescale);
            sum = source == 0 ? value : sum + value;
          }
          const float expected = reference_finish(sum, scaling);
          ASSERT_EQ(std::bit_cast<std::uint32_t>(sums[i]), std::bit_cast<std::uint32_t>(expected));
        }
      }
    }
  });
}

TEST_P(EveryType, large_misaligned_buffers_are_reduced_whole) {
  Random random(kSeed, 200 + static_cast<std::uint64_t>(GetParam()));
  for (const std::size_t sources : {2u, 4u, 5u}) {
    check_reduction(random, GetParam(), ReduceOperation::kSum, sources, 70'001);
  }
}

INSTANTIATE_TEST_SUITE_P(kernels, EveryType, testing::ValuesIn(all_data_types().begin(), all_data_types().end()),
                         [](const auto& parameter) { return std::string(name(parameter.param)); });

}  // namespace
}  // namespace gyre::collectives
