// Why: docs/guide/numbers.md promises that integers are scaled exactly, and never wrap around where they are scaled or
// averaged. Compared with a model in integers of any size, on random layouts, values, factors and operations.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/collectives/internal/test_support.h"

namespace gyre::collectives {
namespace {

using boost::multiprecision::cpp_int;
using testing::Arrangement;

/// A factor as it is given, and what it means: numerator / denominator, or (0 / 0) no fraction.
struct Factor {
  double given;
  std::int64_t numerator;
  std::int64_t denominator;
};

constexpr std::int64_t kTwoTo32 = std::int64_t{1} << 32;
const Factor kFactors[] = {{1.0, 1, 1},       {1.0, 1, 1},           {-1.0, -1, 1},
                           {0.0, 0, 1},       {2.0, 2, 1},           {-3.0, -3, 1},
                           {1000.0, 1000, 1}, {0x1p32, kTwoTo32, 1}, {-0x1p32, -kTwoTo32, 1},
                           {0.5, 1, 2},       {-0.25, -1, 4},        {0x1p-53, 1, std::int64_t{1} << 53},
                           {1.0 / 3, 1, 3},   {-1.0 / 49, -1, 49},   {1.0 / 1'000'003, 1, 1'000'003},
                           {1.5, 3, 2},       {-0.375, -3, 8},       {4294967295.0 / 4, 4294967295, 4},
                           {0.9, 0, 0},       {-1.7, 0, 0},          {1e-3 * 1.23, 0, 0},
                           {123.456, 0, 0}};

/// `value` times the factor, divided by `ranks`, toward zero.
cpp_int scaled(const cpp_int& value, const Factor& factor, int ranks = 1) {
  if (factor.denominator != 0) return value * factor.numerator / (cpp_int(factor.denominator) * ranks);
  return cpp_int(std::trunc(value.convert_to<double>() * (factor.given / ranks)));
}

struct Case {
  DataType type = DataType::kInt8;
  ReduceOperation operation = ReduceOperation::kSum;
  Factor prescale{};
  Factor postscale{};
  bool scatters = false;
  std::vector<std::vector<std::int64_t>> inputs;  ///< By rank.

  Reduction reduction() const {
    return {.type = type, .operation = operation, .prescale = prescale.given, .postscale = postscale.given};
  }
  int size() const { return static_cast<int>(inputs.size()); }
  std::string describe(std::size_t element) const {
    std::vector<std::int64_t> values;
    for (const std::vector<std::int64_t>& input : inputs) values.push_back(input[element]);
    return fmt::format("{} {} of {} elements, prescale {:a}, postscale {:a}, of the values {}", name(type),
                       name(operation), inputs.front().size(), prescale.given, postscale.given, fmt::join(values, " "));
  }
};

std::pair<std::int64_t, std::int64_t> limits_of(DataType type) {
  switch (type) {
    case DataType::kUint8: return {0, 255};
    case DataType::kInt8: return {-128, 127};
    case DataType::kInt16: return {-32768, 32767};
    case DataType::kInt32: return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    default: return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
  }
}

/// The lowest bits, as wrapping around leaves them.
std::int64_t wrapped(const cpp_int& value, DataType type) {
  const cpp_int modulus = cpp_int(1) << static_cast<unsigned>(8 * size_of(type));
  cpp_int rest = value % modulus;
  if (rest < 0) rest += modulus;
  if (rest > limits_of(type).second) rest -= modulus;
  return rest.convert_to<std::int64_t>();
}

std::int64_t expected(const Case& one, std::size_t element) {
  cpp_int sum = scaled(one.inputs.front()[element], one.prescale);
  for (std::size_t rank = 1; rank < one.inputs.size(); ++rank) {
    const cpp_int next = scaled(one.inputs[rank][element], one.prescale);
    switch (one.operation) {
      case ReduceOperation::kMin: sum = std::min(sum, next); break;
      case ReduceOperation::kMax: sum = std::max(sum, next); break;
      case ReduceOperation::kProduct: sum *= next; break;
      default: sum += next;
    }
  }
  const bool average = one.operation == ReduceOperation::kAverage;
  if (!average && one.prescale.given == 1.0 && one.postscale.given == 1.0) return wrapped(sum, one.type);
  const cpp_int result = scaled(sum, one.postscale, average ? one.size() : 1);
  const auto [least, most] = limits_of(one.type);
  return std::clamp(result, cpp_int(least), cpp_int(most)).convert_to<std::int64_t>();
}

void store(DataType type, std::byte* to, std::int64_t value) {
  std::memcpy(to, &value, size_of(type));  // Of little-endian numbers the lowest bytes come first.
}

std::int64_t load(DataType type, const std::byte* from) {
  std::int64_t value = 0;
  std::memcpy(&value, from, size_of(type));
  const unsigned unused = 64 - 8 * static_cast<unsigned>(size_of(type));
  if (type == DataType::kUint8) return value;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << unused) >> unused;
}

/// All bits at random, small numbers, or at the type's limits.
std::int64_t random_value(DataType type, Random& random) {
  const auto [least, most] = limits_of(type);
  switch (random.below(4)) {
    case 0: return std::clamp<std::int64_t>(static_cast<std::int64_t>(random.below(7)) - 3, least, most);
    case 1: return random.below(2) == 0 ? least : most;
    case 2: return most / 2 + static_cast<std::int64_t>(random.below(5));
    default: return wrapped(cpp_int(random.next_u64()), type);
  }
}

Case random_case(int size, Random& random) {
  constexpr DataType kTypes[] = {DataType::kUint8, DataType::kInt8, DataType::kInt16, DataType::kInt32,
                                 DataType::kInt64};
  Case one;
  one.type = kTypes[random.below(std::size(kTypes))];
  one.operation = all_reduce_operations()[random.below(all_reduce_operations().size())];
  one.prescale = kFactors[random.below(std::size(kFactors))];
  one.postscale = kFactors[random.below(std::size(kFactors))];
  one.scatters = random.below(3) == 0;
  const std::uint64_t most = random.below(3) == 0 ? 20'000 : 40;
  const std::size_t count = static_cast<std::size_t>(size) * (1 + random.below(most));
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::int64_t>& input = one.inputs.emplace_back(count);
    for (std::int64_t& value : input) value = random_value(one.type, random);
  }
  return one;
}

/// Each rank's result.
std::vector<Bytes> run(const Case& one, const Arrangement& layout) {
  std::vector<Bytes> results(one.inputs.size());
  testing::run_ranks(one.size(), layout, [&](group::Lane& lane) {
    const auto rank = static_cast<std::size_t>(lane.rank());
    const std::vector<std::int64_t>& values = one.inputs[rank];
    Bytes input(values.size() * size_of(one.type));
    for (std::size_t i = 0; i < values.size(); ++i) store(one.type, input.data() + i * size_of(one.type), values[i]);
    if (!one.scatters) {
      allreduce(lane, input, one.reduction());
      results[rank] = input;
      return;
    }
    const std::vector<std::size_t> sizes_bytes(one.inputs.size(), input.size() / one.inputs.size());
    results[rank].resize(sizes_bytes[rank]);
    reduce_scatter(lane, input, sizes_bytes, results[rank], one.reduction());
  });
  return results;
}

void check(const Case& one, const Arrangement& layout) {
  const std::vector<Bytes> results = run(one, layout);
  const std::size_t count = one.inputs.front().size();
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    const std::size_t begin = one.scatters ? rank * count / results.size() : 0;
    for (std::size_t i = 0; i < results[rank].size() / size_of(one.type); i += count < 500 ? 1 : 37) {
      ASSERT_EQ(load(one.type, results[rank].data() + i * size_of(one.type)), expected(one, begin + i))
          << one.describe(begin + i) << (one.scatters ? "; reduce-scatter" : "; allreduce") << " on " << layout.name
          << ", rank " << rank << ", seed " << testing::test_seed();
    }
  }
}

Arrangement random_layout(int size, Random& random) {
  const std::uint64_t hosts = 1 + random.below(static_cast<std::uint64_t>(size));
  Arrangement layout{"", {}};
  for (int rank = 0; rank < size; ++rank) layout.host_ids.push_back(fmt::format("h{}", random.below(hosts)));
  layout.name = fmt::format("{}", fmt::join(layout.host_ids, " "));
  return layout;
}

TEST(ScaledIntegers, are_what_integers_of_any_size_give) {
  Random random(testing::test_seed(), 41);
  for (int round = 0; round < 400 && !::testing::Test::HasFatalFailure(); ++round) {
    const int size = 1 + static_cast<int>(random.below(7));
    const Arrangement layout = random_layout(size, random);
    check(random_case(size, random), layout);
  }
}

TEST(ScaledIntegers, do_not_wrap_around_where_the_factors_cancel_out) {
  const Arrangement layouts[] = {testing::one_host(2), testing::a_host_each(2)};
  for (const Arrangement& layout : layouts) {
    const Factor one{1.0, 1, 1};
    const Factor two{2.0, 2, 1};
    const Factor half{0.5, 1, 2};
    check({DataType::kInt8, ReduceOperation::kSum, two, half, false, {{100, 64, -100}, {27, 63, 100}}}, layout);
    check({DataType::kUint8, ReduceOperation::kSum, {0.9, 0, 0}, one, false, {{255, 10}, {255, 10}}}, layout);
    check({DataType::kInt8, ReduceOperation::kAverage, one, two, false, {{100, -128}, {100, -128}}}, layout);
    check({DataType::kInt8, ReduceOperation::kProduct, two, {0.25, 1, 4}, false, {{100, 11}, {1, 11}}}, layout);
  }
}

TEST(ScaledIntegers, of_64_bits_are_exact_beyond_the_numbers_that_a_double_holds) {
  constexpr std::int64_t kOdd = (std::int64_t{1} << 53) + 1;
  const Factor one{1.0, 1, 1};
  for (const Arrangement& layout : {testing::one_host(2), testing::a_host_each(2)}) {
    for (const Factor& factor : {Factor{-1.0, -1, 1}, Factor{3.0, 3, 1}, Factor{1.0 / 3, 1, 3}, Factor{1.5, 3, 2}}) {
      for (const auto operation : {ReduceOperation::kMax, ReduceOperation::kMin, ReduceOperation::kAverage,
                                   ReduceOperation::kSum, ReduceOperation::kProduct}) {
        check({DataType::kInt64, operation, one, factor, false, {{kOdd, -kOdd}, {1, kOdd}}}, layout);
        check({DataType::kInt64, operation, factor, one, true, {{kOdd, -kOdd}, {1, kOdd}}}, layout);
      }
    }
  }
}

TEST(ScaledIntegers, refuse_factors_that_leave_nothing_exact) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double factor : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 0x1.01p32, 0x1.ffp-54}) {
    for (const Reduction& reduction : {Reduction{.type = DataType::kInt16, .prescale = factor},
                                       Reduction{.type = DataType::kInt16, .postscale = factor}}) {
      EXPECT_NE(reduction_problem(reduction).find("int16 tensors cannot be multiplied by"), std::string::npos);
      testing::run_ranks(1, testing::one_host(1), [&](group::Lane& lane) {
        Bytes values(2);
        EXPECT_THROW(allreduce(lane, values, reduction), Error);
      });
    }
    EXPECT_EQ(reduction_problem({.type = DataType::kFloat32, .prescale = factor}), "");
  }
  EXPECT_EQ(reduction_problem({.type = DataType::kInt64, .prescale = 0x1p32, .postscale = 0x1p-53}), "");
}

}  // namespace
}  // namespace gyre::collectives
