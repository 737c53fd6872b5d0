// Why: docs/guide/numbers.md promises in which precision a reduction computes and where it rounds, wherever the ranks
// are. The inputs here are such that every order of a sum gives the same exact value, so the promise fixes each bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "gyre/base/floating_point.h"
#include "gyre/base/random.h"
#include "gyre/collectives/internal/kernels/kernels_test_support.h"
#include "gyre/collectives/internal/test_support.h"

namespace gyre::collectives {
namespace {

using testing::Arrangement;

struct Case {
  Reduction reduction;
  bool scatters = false;
  std::size_t count = 0;      ///< Of each rank's contribution; a multiple of the number of ranks.
  std::vector<Bytes> inputs;  ///< By rank.
  std::vector<Bytes> outputs;

  std::string describe() const {
    return fmt::format("{} {} {} of {} elements, prescale {}, postscale {}", scatters ? "reduce-scatter" : "allreduce",
                       name(reduction.type), name(reduction.operation), count, reduction.prescale, reduction.postscale);
  }
};

constexpr std::array kTypes{DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64,
                            DataType::kInt8,    DataType::kInt32,    DataType::kInt64};

void store(DataType type, std::byte* to, double value) {
  const auto put = [&](auto element) { std::memcpy(to, &element, sizeof element); };
  switch (type) {
    case DataType::kFloat16: return put(float16_bits(static_cast<float>(value)));
    case DataType::kBfloat16: return put(bfloat16_bits(static_cast<float>(value)));
    case DataType::kFloat32: return put(static_cast<float>(value));
    case DataType::kFloat64: return put(value);
    case DataType::kInt8: return put(static_cast<std::int8_t>(value));
    case DataType::kInt32: return put(static_cast<std::int32_t>(value));
    default: return put(static_cast<std::int64_t>(value));
  }
}

double load(DataType type, const Bytes& elements, std::size_t index) {
  std::uint16_t half = 0;
  if (size_of(type) == sizeof half) std::memcpy(&half, elements.data() + index * sizeof half, sizeof half);
  if (type == DataType::kFloat16) return float16_value(half);
  if (type == DataType::kBfloat16) return bfloat16_value(half);
  return testing::element_as_double(type, elements, index);
}

/// Units in which sums of small multiples are exact: denormals, numbers of every day, and the largest of the type.
int exponent_for(DataType type, std::uint32_t choice) {
  if (!is_floating_point(type)) return 0;
  const std::array<int, 3> exponents = type == DataType::kFloat16   ? std::array{-24, 0, 12}
                                       : type == DataType::kFloat64 ? std::array{-1074, 0, 1010}
                                       : type == DataType::kFloat32 ? std::array{-149, 0, 120}
                                                                    : std::array{-133, 0, 120};
  return exponents[choice % exponents.size()];
}

Case make_case(int size, DataType type, Random& random) {
  constexpr std::array kFactors{1.0, 1.0, 0.5, 0.25, -2.0, 3.0};
  const auto operations = all_reduce_operations();
  Case made;
  made.reduction = {.type = type, .operation = operations[random.below(operations.size())]};
  made.reduction.prescale = kFactors[random.below(kFactors.size())];
  made.reduction.postscale = kFactors[random.below(kFactors.size())];
  made.scatters = random.below(4) == 0;
  const std::array<std::size_t, 3> limits{9, 2'000, 12'000};
  made.count = static_cast<std::size_t>(size) * (1 + random.below(limits[random.below(limits.size())]));
  if (!made.scatters) made.count = (made.count + 63) / 64 * 64;  // Whole cache lines, for the arena.
  const bool product = made.reduction.operation == ReduceOperation::kProduct;
  // A product of powers of two stays one.
  const int exponent = product ? 0 : exponent_for(type, random.next_u32());
  for (int r = 0; r < size; ++r) {
    Bytes& input = made.inputs.emplace_back(made.count * size_of(type));
    for (std::size_t i = 0; i < made.count; ++i) {
      const double multiple = product ? (random.below(2) == 0 ? 1.0 : -2.0) : static_cast<double>(random.below(15)) - 7;
      store(type, input.data() + i * size_of(type), std::ldexp(multiple, exponent));
    }
  }
  made.outputs.resize(static_cast<std::size_t>(size));
  return made;
}

/// The promise for floats: `Number` is in what is computed.
template <typename Number>
double expected_float(const Case& one, std::size_t index) {
  const Reduction& reduction = one.reduction;
  const auto ranks = static_cast<double>(one.inputs.size());
  const auto contribution = [&](std::size_t rank) {
    return static_cast<Number>(reduction.prescale) * static_cast<Number>(load(reduction.type, one.inputs[rank], index));
  };
  Number value = contribution(0);
  for (std::size_t rank = 1; rank < one.inputs.size(); ++rank) {
    const Number next = contribution(rank);
    switch (reduction.operation) {
      case ReduceOperation::kMin: value = next < value || (next == value && std::signbit(next)) ? next : value; break;
      case ReduceOperation::kMax: value = next > value || (next == value && !std::signbit(next)) ? next : value; break;
      case ReduceOperation::kProduct: value *= next; break;
      default: value += next;  // Exact, in any order.
    }
  }
  const double divided_by = reduction.operation == ReduceOperation::kAverage ? ranks : 1.0;
  const double divisor = divided_by / reduction.postscale;
  // All that the factors give here have few bits, so this comparison is exact enough.
  const bool divides = std::fma(divisor, reduction.postscale, -divided_by) == 0.0 &&
                       static_cast<double>(static_cast<float>(divisor)) == divisor;
  return divides ? value / static_cast<Number>(divisor) : value * static_cast<Number>(reduction.postscale / divided_by);
}

std::int64_t nearest_of(DataType type, long double value) {
  const auto within = [&](auto limits) {
    using Limits = decltype(limits);
    return static_cast<std::int64_t>(std::clamp<long double>(std::trunc(value), Limits::min(), Limits::max()));
  };
  if (type == DataType::kInt8) return within(std::numeric_limits<std::int8_t>());
  if (type == DataType::kInt32) return within(std::numeric_limits<std::int32_t>());
  return within(std::numeric_limits<std::int64_t>());
}

/// The promise for integers, whose sums and products stay far below 2^53 here: numbers_integers_test.cc goes further.
double expected_integer(const Case& one, std::size_t index) {
  const Reduction& reduction = one.reduction;
  const auto contribution = [&](std::size_t rank) {
    return static_cast<std::int64_t>(reduction.prescale * load(reduction.type, one.inputs[rank], index));
  };
  std::int64_t value = contribution(0);
  for (std::size_t rank = 1; rank < one.inputs.size(); ++rank) {
    const std::int64_t next = contribution(rank);
    switch (reduction.operation) {
      case ReduceOperation::kMin: value = std::min(value, next); break;
      case ReduceOperation::kMax: value = std::max(value, next); break;
      case ReduceOperation::kProduct: value *= next; break;
      default: value += next;
    }
  }
  const bool average = reduction.operation == ReduceOperation::kAverage;
  if (!average && reduction.prescale == 1.0 && reduction.postscale == 1.0) {
    if (reduction.type == DataType::kInt8) return static_cast<std::int8_t>(value);
    if (reduction.type == DataType::kInt32) return static_cast<std::int32_t>(value);
    return static_cast<double>(value);
  }
  const long double divided_by = average ? static_cast<long double>(one.inputs.size()) : 1.0L;
  return static_cast<double>(nearest_of(
      reduction.type, static_cast<long double>(value) * static_cast<long double>(reduction.postscale) / divided_by));
}

Bytes expected(const Case& one) {
  const DataType type = one.reduction.type;
  Bytes result(one.count * size_of(type));
  for (std::size_t i = 0; i < one.count; ++i) {
    const double value = !is_floating_point(type)     ? expected_integer(one, i)
                         : type == DataType::kFloat64 ? expected_float<double>(one, i)
                                                      : expected_float<float>(one, i);
    store(type, result.data() + i * size_of(type), value);
  }
  return result;
}

void run_case(group::Lane& lane, Case& one, bool in_arena) {
  const auto rank = static_cast<std::size_t>(lane.rank());
  Bytes& output = one.outputs[rank];
  if (one.scatters) {
    const std::size_t share = one.inputs[rank].size() / static_cast<std::size_t>(lane.size());
    const std::vector<std::size_t> sizes(static_cast<std::size_t>(lane.size()), share);
    output.resize(share);
    return reduce_scatter(lane, one.inputs[rank], sizes, output, one.reduction);
  }
  output = one.inputs[rank];
  if (!in_arena) {
    allreduce(lane, output, one.reduction);
    return;
  }
  const std::span<std::byte> place = arena(lane).first(output.size());
  std::copy(output.begin(), output.end(), place.begin());
  allreduce_in_arena(lane, 0, place.size(), one.reduction);
  std::copy(place.begin(), place.end(), output.begin());
  barrier(lane);
}

/// Every second rank flushes denormals, as after torch.set_flush_denormal(True).
class FlushingOnSomeRanks {
 public:
  explicit FlushingOnSomeRanks([[maybe_unused]] int rank) {
#if defined(__x86_64__)
    if (rank % 2 == 1) _mm_setcsr(former_ | 0x8040);
#endif
  }
  ~FlushingOnSomeRanks() {
#if defined(__x86_64__)
    _mm_setcsr(former_);
#endif
  }
  FlushingOnSomeRanks(const FlushingOnSomeRanks&) = delete;
  FlushingOnSomeRanks& operator=(const FlushingOnSomeRanks&) = delete;

 private:
#if defined(__x86_64__)
  unsigned former_ = _mm_getcsr();
#endif
};

void expect_promised_bits(const Case& one, const std::string& where) {
  const Bytes wanted = expected(one);
  for (std::size_t rank = 0; rank < one.outputs.size(); ++rank) {
    const Bytes& output = one.outputs[rank];
    const std::size_t begin = one.scatters ? rank * output.size() : 0;
    if (std::equal(output.begin(), output.end(), wanted.begin() + static_cast<std::ptrdiff_t>(begin))) continue;
    const DataType type = one.reduction.type;
    for (std::size_t i = 0; i < output.size() / size_of(type); ++i) {
      const std::size_t at = begin / size_of(type) + i;
      const bool same =
          std::memcmp(output.data() + i * size_of(type), wanted.data() + at * size_of(type), size_of(type)) == 0;
      if (same) continue;
      ADD_FAILURE() << one.describe() << "; " << where << ": rank " << rank << ", element " << at << " is "
                    << load(type, output, i) << " and not " << load(type, wanted, at);
      break;
    }
  }
}

class NumbersOfRanks : public ::testing::TestWithParam<int> {};

TEST_P(NumbersOfRanks, have_the_promised_bits_for_every_type_operation_scale_size_and_placement) {
  const int size = GetParam();
  std::vector<Arrangement> arrangements = testing::arrangements(size);
  for (const Arrangement& one : testing::host_arrangements(size)) arrangements.push_back(one);
  std::uint64_t stream = 700;
  for (const Arrangement& arrangement : arrangements) {
    for (const bool in_arena : {false, true}) {
      if (in_arena && !arrangement.segment) continue;
      Random random(testing::test_seed(), stream++);
      std::vector<Case> cases;
      for (const DataType type : kTypes) {
        for (int i = 0; i < 4; ++i) cases.push_back(make_case(size, type, random));
      }
      testing::run_ranks(
          size, arrangement,
          [&](group::Lane& lane) {
            const FlushingOnSomeRanks state(lane.rank());
            for (Case& one : cases) run_case(lane, one, in_arena);
          },
          in_arena ? std::size_t{1} << 20 : 0);
      const std::string where = fmt::format("{} ranks, {}{}; seed {}", size, arrangement.name,
                                            in_arena ? ", in the arena" : "", testing::test_seed());
      for (const Case& one : cases) expect_promised_bits(one, where);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NumbersOfRanks, ::testing::Values(1, 2, 3, 4, 6, 7));

TEST(Numbers, do_not_overflow_where_a_prescale_or_an_average_keeps_them_in_range) {
  for (const Arrangement& arrangement : testing::arrangements(4)) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{200'000}}) {
      testing::run_ranks(4, arrangement, [&](group::Lane& lane) {
        std::vector<float> large(count, 3e38F);
        allreduce(lane, std::as_writable_bytes(std::span(large)),
                  {.type = DataType::kFloat32, .operation = ReduceOperation::kSum, .prescale = 0.25});
        EXPECT_EQ(std::count(large.begin(), large.end(), 3e38F), static_cast<std::ptrdiff_t>(count));
        std::vector<std::uint16_t> halves(count, float16_bits(30'000.0F));
        allreduce(lane, std::as_writable_bytes(std::span(halves)),
                  {.type = DataType::kFloat16, .operation = ReduceOperation::kAverage});
        EXPECT_EQ(std::count(halves.begin(), halves.end(), float16_bits(30'000.0F)), static_cast<std::ptrdiff_t>(count))
            << arrangement.name;
      });
    }
  }
}

TEST(Numbers, of_16_bits_between_two_hosts_of_one_rank_take_two_bytes_on_the_wire) {
  testing::run_ranks(2, testing::a_host_each(2), [](group::Lane& lane) {
    for (const std::size_t count : {std::size_t{1000}, std::size_t{500'000}}) {
      std::vector<std::uint16_t> halves(count, bfloat16_bits(1.0F));
      const std::uint64_t before = lane.counters().bytes_sent;
      allreduce(lane, std::as_writable_bytes(std::span(halves)), {.type = DataType::kBfloat16});
      const std::uint64_t sent = lane.counters().bytes_sent - before;
      EXPECT_GE(sent, 2 * count);
      EXPECT_LE(sent, 2 * count + 2 * count / 100 + 100);
    }
  });
}

}  // namespace
}  // namespace gyre::collectives
