#include "gyre/collectives/internal/test_support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "gyre/base/random.h"
#include "gyre/collectives/kernels.h"
#include "gyre/group/in_process.h"

namespace gyre::collectives::testing {
namespace {

template <typename T>
T load(std::span<const std::byte> elements, std::size_t index) {
  T value;
  std::memcpy(&value, elements.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::int64_t load_integer(DataType type, std::span<const std::byte> elements, std::size_t index) {
  switch (type) {
    case DataType::kUint8: return load<std::uint8_t>(elements, index);
    case DataType::kInt8: return load<std::int8_t>(elements, index);
    case DataType::kInt16: return load<std::int16_t>(elements, index);
    case DataType::kInt32: return load<std::int32_t>(elements, index);
    case DataType::kInt64: return load<std::int64_t>(elements, index);
    default: return load<std::uint8_t>(elements, index) != 0;
  }
}

/// Wide enough for the sum of an average; what is not averaged is truncated afterwards.
using Wide = __int128;

Wide combine(ReduceOperation operation, Wide a, Wide b) {
  const auto wide_a = static_cast<unsigned __int128>(a);
  const auto wide_b = static_cast<unsigned __int128>(b);
  switch (operation) {
    case ReduceOperation::kMin: return std::min(a, b);
    case ReduceOperation::kMax: return std::max(a, b);
    case ReduceOperation::kProduct: return static_cast<Wide>(wide_a * wide_b);
    default: return static_cast<Wide>(wide_a + wide_b);
  }
}

/// Truncated to the width of the type, as wrapping arithmetic leaves it.
std::int64_t wrapped(DataType type, std::int64_t value) {
  switch (type) {
    case DataType::kUint8: return static_cast<std::uint8_t>(value);
    case DataType::kInt8: return static_cast<std::int8_t>(value);
    case DataType::kInt16: return static_cast<std::int16_t>(value);
    case DataType::kInt32: return static_cast<std::int32_t>(value);
    case DataType::kBoolean: return value != 0;
    default: return value;
  }
}

std::int64_t expected_integer(std::span<const Bytes> inputs, std::size_t index, const Reduction& reduction) {
  Wide value = load_integer(reduction.type, inputs[0], index);
  for (std::size_t r = 1; r < inputs.size(); ++r) {
    value = combine(reduction.operation, value, load_integer(reduction.type, inputs[r], index));
  }
  if (reduction.type != DataType::kBoolean && reduction.operation == ReduceOperation::kAverage) {
    return static_cast<std::int64_t>(value / static_cast<Wide>(inputs.size()));
  }
  return wrapped(reduction.type, static_cast<std::int64_t>(value));
}

struct Bounded {
  double value;
  double error;
};

double epsilon_of(DataType type) {
  switch (type) {
    case DataType::kFloat16: return 0x1p-10;
    case DataType::kBfloat16: return 0x1p-7;
    case DataType::kFloat32: return 0x1p-23;
    default: return 0x1p-52;
  }
}

Bounded expected_float(std::span<const Bytes> inputs, std::size_t index, const Reduction& reduction) {
  double value = element_as_double(reduction.type, inputs[0], index) * reduction.prescale;
  double magnitude = std::abs(value);
  for (std::size_t r = 1; r < inputs.size(); ++r) {
    const double x = element_as_double(reduction.type, inputs[r], index) * reduction.prescale;
    switch (reduction.operation) {
      case ReduceOperation::kMin: value = std::min(value, x); break;
      case ReduceOperation::kMax: value = std::max(value, x); break;
      case ReduceOperation::kProduct: value *= x; break;
      default: value += x;
    }
    magnitude = reduction.operation == ReduceOperation::kProduct ? std::abs(value) : magnitude + std::abs(x);
  }
  double scale = reduction.postscale;
  if (reduction.operation == ReduceOperation::kAverage) scale /= static_cast<double>(inputs.size());
  // Each of n-1 combinations and the scaling rounds once, by half an epsilon of what is at hand.
  const double roundings = static_cast<double>(inputs.size()) + 1;
  return {value * scale, roundings * epsilon_of(reduction.type) * magnitude * std::abs(scale)};
}

}  // namespace

std::vector<Arrangement> arrangements(int size) {
  Arrangement links = one_host(size);
  links.name = "one host, no shared memory";
  links.segment = false;
  Arrangement turns{"two hosts in turns", {}};
  Arrangement mixed{"hosts of three", {}};
  for (int r = 0; r < size; ++r) {
    turns.host_ids.push_back(fmt::format("host{}", r % 2));
    mixed.host_ids.push_back(fmt::format("host{}", r / 3));
  }
  return {one_host(size), links, a_host_each(size), turns, mixed};
}

std::vector<Arrangement> host_arrangements(int size) {
  std::vector<Arrangement> found;
  const auto add = [&](std::string_view name, const std::function<int(int)>& host_of) {
    Arrangement arrangement{std::string(name), {}};
    for (int r = 0; r < size; ++r) arrangement.host_ids.push_back(fmt::format("host{}", host_of(r)));
    const std::set<std::string> hosts(arrangement.host_ids.begin(), arrangement.host_ids.end());
    if (hosts.size() > 1 && static_cast<int>(hosts.size()) < size) found.push_back(arrangement);
  };
  add("hosts of two", [](int r) { return r / 2; });
  add("two hosts in turns", [](int r) { return r % 2; });
  add("three hosts in turns", [](int r) { return r % 3; });
  add("all but one on the second host", [](int r) { return r == 0 ? 0 : 1; });
  add("the last one alone", [size](int r) { return r == size - 1 ? 1 : 0; });
  return found;
}

Arrangement one_host(int size) {
  return {"one host", std::vector<std::string>(static_cast<std::size_t>(size), "host")};
}

Arrangement a_host_each(int size) {
  Arrangement each{"a host each", {}};
  for (int r = 0; r < size; ++r) each.host_ids.push_back(fmt::format("host{}", r));
  return each;
}

void run_ranks(int size, const Arrangement& arrangement, const std::function<void(group::Lane&)>& body,
               std::size_t arena_bytes, std::chrono::milliseconds timeout) {
  group::run_in_process(
      size,
      [&](group::Group& group) {
        group::LaneOptions options;
        options.channel = 7;
        options.timeout = timeout;
        if (arrangement.segment) {
          options.segment_bytes = segment_bytes_for(group.topology().local_size(), arena_bytes);
        }
        group::Lane lane(group, options);
        body(lane);
        barrier(lane);
      },
      arrangement.host_ids);
}

std::uint64_t test_seed() {
  const int chosen = ::testing::UnitTest::GetInstance()->random_seed();
  return chosen == 0 ? 20240917 : static_cast<std::uint64_t>(chosen);
}

Bytes random_elements(DataType type, std::size_t count, std::uint64_t seed, std::uint64_t stream) {
  Random random(seed, stream);
  Bytes elements(count * size_of(type));
  const auto number = [&] {
    const float magnitude = random.uniform(0.5F, 1.5F);
    return random.next_u32() % 2 == 0 ? magnitude : -magnitude;
  };
  if (is_floating_point(type)) {
    std::vector<float> values(count);
    std::generate(values.begin(), values.end(), number);
    if (type == DataType::kFloat32) {
      if (count > 0) std::memcpy(elements.data(), values.data(), elements.size());
    } else if (type == DataType::kFloat64) {
      const std::vector<double> wide(values.begin(), values.end());
      if (count > 0) std::memcpy(elements.data(), wide.data(), elements.size());
    } else {
      std::vector<std::uint16_t> half(count);
      narrow_float32(half.data(), values.data(), count, type);
      if (count > 0) std::memcpy(elements.data(), half.data(), elements.size());
    }
    return elements;
  }
  for (std::size_t i = 0; i < elements.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t drawn = random.next_u64();
    std::memcpy(elements.data() + i, &drawn, std::min(sizeof drawn, elements.size() - i));
  }
  if (type == DataType::kBoolean) {
    for (std::byte& byte : elements) byte &= std::byte{1};
  }
  return elements;
}

double element_as_double(DataType type, std::span<const std::byte> elements, std::size_t index) {
  if (type == DataType::kFloat64) return load<double>(elements, index);
  if (type == DataType::kFloat32) return load<float>(elements, index);
  if (!is_floating_point(type)) return static_cast<double>(load_integer(type, elements, index));
  const auto half = load<std::uint16_t>(elements, index);
  float value = 0;
  widen_to_float32(&value, &half, 1, type);
  return value;
}

std::string difference_from_reference(std::span<const Bytes> inputs, std::span<const std::byte> result,
                                      const Reduction& reduction) {
  const std::size_t count = result.size() / size_of(reduction.type);
  for (std::size_t i = 0; i < count; ++i) {
    if (is_floating_point(reduction.type)) {
      const double got = element_as_double(reduction.type, result, i);
      const Bounded expected = expected_float(inputs, i, reduction);
      if (std::abs(got - expected.value) <= expected.error) continue;
      return fmt::format("element {}: {} instead of {} ± {}", i, got, expected.value, expected.error);
    }
    const std::int64_t got = load_integer(reduction.type, result, i);
    const std::int64_t expected = expected_integer(inputs, i, reduction);
    if (got != expected) return fmt::format("element {}: {} instead of {}", i, got, expected);
  }
  return {};
}

}  // namespace gyre::collectives::testing
