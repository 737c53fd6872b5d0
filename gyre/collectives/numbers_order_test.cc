// Why: docs/guide/numbers.md fixes the order of every sum that is rounded. Random layouts of ranks over hosts, compared
// bit by bit with a model that knows the order, not the algorithms.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "gyre/base/random.h"
#include "gyre/collectives/internal/index_of.h"
#include "gyre/collectives/internal/test_support.h"
#include "gyre/collectives/link_cost.h"
#include "gyre/collectives/select.h"

namespace gyre::collectives {
namespace {

using internal::index_of;
using testing::Arrangement;

/// By rank, a number of elements each.
template <typename Number>
using Inputs = std::vector<std::vector<Number>>;

/// Hosts in the order of their lowest ranks, each with its ranks ascending.
std::vector<std::vector<int>> hosts_of(const Arrangement& arrangement) {
  std::vector<std::vector<int>> hosts;
  std::vector<std::string> seen;
  for (std::size_t rank = 0; rank < arrangement.host_ids.size(); ++rank) {
    const auto found = std::find(seen.begin(), seen.end(), arrangement.host_ids[rank]);
    const auto host = static_cast<std::size_t>(found - seen.begin());
    if (found == seen.end()) {
      seen.push_back(arrangement.host_ids[rank]);
      hosts.emplace_back();
    }
    hosts[host].push_back(static_cast<int>(rank));
  }
  return hosts;
}

/// What each host makes of its ranks' contributions to an element: in rank order.
template <typename Number>
std::vector<Number> sums_of_hosts(const std::vector<std::vector<int>>& hosts, const Inputs<Number>& inputs,
                                  std::size_t element) {
  std::vector<Number> sums;
  for (const std::vector<int>& ranks : hosts) {
    Number sum = inputs[index_of(ranks.front())][element];
    for (std::size_t i = 1; i < ranks.size(); ++i) sum += inputs[index_of(ranks[i])][element];
    sums.push_back(sum);
  }
  return sums;
}

/// Of hosts in a circle, the one with number `last` comes last, the one after it first.
template <typename Number>
Number around(const std::vector<Number>& sums, std::size_t last) {
  Number sum = sums[(last + 1) % sums.size()];
  for (std::size_t i = 2; i <= sums.size(); ++i) sum += sums[(last + i) % sums.size()];
  return sum;
}

/// Those too many for a power of two join the even ones among the first, then pairs at a distance that doubles, or
/// halves.
template <typename Number>
Number by_pairs(const std::vector<Number>& sums, bool halves) {
  const std::size_t core = std::bit_floor(sums.size());
  const std::size_t excess = sums.size() - core;
  std::vector<Number> left;
  for (std::size_t i = 0; i < excess; ++i) left.push_back(sums[2 * i] + sums[2 * i + 1]);
  left.insert(left.end(), sums.begin() + static_cast<std::ptrdiff_t>(2 * excess), sums.end());
  while (left.size() > 1) {
    std::vector<Number> next;
    for (std::size_t i = 0; i < left.size() / 2; ++i) {
      next.push_back(halves ? left[i] + left[i + left.size() / 2] : left[2 * i] + left[2 * i + 1]);
    }
    left = std::move(next);
  }
  return left.front();
}

/// Begins of `parts` parts that differ in length by one unit at most, the first ones being the longer ones.
std::size_t part_of(std::size_t element, std::size_t count, std::size_t parts, std::size_t unit) {
  const std::size_t units = (count + unit - 1) / unit;
  std::size_t begin = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t end = begin + (units / parts + (part < units % parts ? 1 : 0)) * unit;
    if (element < end) return part;
    begin = end;
  }
  return parts - 1;
}

/// The number of an element's chunk of a ring: the buffer is cut into parts, one for each rank of the smallest host,
/// and these into as many chunks as there are hosts.
std::size_t ring_chunk(std::size_t element, std::size_t count, const std::vector<std::vector<int>>& hosts,
                       std::size_t element_bytes) {
  std::size_t slices = hosts.front().size();
  bool all_apart = true;
  for (const std::vector<int>& ranks : hosts) {
    slices = std::min(slices, ranks.size());
    all_apart = all_apart && ranks.size() == 1;
  }
  const std::size_t unit = all_apart ? 1 : 64 / element_bytes;
  const std::size_t slice = part_of(element, count, slices, unit);
  std::size_t first = element;
  while (first > 0 && part_of(first - 1, count, slices, unit) == slice) --first;
  std::size_t end = element + 1;
  while (end < count && part_of(end, count, slices, unit) == slice) ++end;
  return part_of(element - first, end - first, hosts.size(), 1);
}

template <typename Number>
Number expected_allreduce(const std::vector<std::vector<int>>& hosts, const Inputs<Number>& inputs,
                          std::size_t element) {
  const std::vector<Number> sums = sums_of_hosts(hosts, inputs, element);
  if (sums.size() == 1) return sums.front();
  if (sums.size() == 2) return sums[0] + sums[1];
  const std::size_t count = inputs.front().size();
  const LinkSchedule schedule = choose_link_schedule(static_cast<int>(hosts.size()), count * sizeof(Number));
  if (schedule != LinkSchedule::kRing) return by_pairs(sums, schedule == LinkSchedule::kHalving);
  return around(sums, ring_chunk(element, count, hosts, sizeof(Number)));
}

template <typename Number>
Number expected_reduce_scatter(const std::vector<std::vector<int>>& hosts, const Inputs<Number>& inputs,
                               std::size_t element, int owner) {
  const std::vector<Number> sums = sums_of_hosts(hosts, inputs, element);
  if (sums.size() == 1) return sums.front();
  const auto of_owner = std::find_if(hosts.begin(), hosts.end(), [&](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), owner) != ranks.end();
  });
  return around(sums, static_cast<std::size_t>(of_owner - hosts.begin()));
}

Arrangement random_layout(int size, Random& random) {
  const std::uint64_t hosts = 1 + random.below(index_of(size));
  Arrangement layout{"", {}};
  for (int rank = 0; rank < size; ++rank) layout.host_ids.push_back(fmt::format("h{}", random.below(hosts)));
  layout.name = fmt::format("{}", fmt::join(layout.host_ids, " "));
  return layout;
}

template <typename Number>
constexpr DataType type_of() {
  return std::is_same_v<Number, double> ? DataType::kFloat64 : DataType::kFloat32;
}

/// Numbers of very different sizes, whose sums are rounded in nearly every order differently.
template <typename Number>
Inputs<Number> random_inputs(int size, std::size_t count, Random& random) {
  Inputs<Number> inputs(index_of(size), std::vector<Number>(count));
  for (std::vector<Number>& input : inputs) {
    for (Number& number : input) {
      number = std::ldexp(static_cast<Number>(random.uniform(-1.0F, 1.0F)), static_cast<int>(random.below(40)) - 20);
    }
  }
  return inputs;
}

template <typename Number>
void check_allreduce(int size, std::size_t count, const Arrangement& layout, Random& random, bool in_arena) {
  if (in_arena) count = (count + 63) / 64 * 64;
  const Inputs<Number> inputs = random_inputs<Number>(size, count, random);
  Inputs<Number> outputs = inputs;
  const auto body = [&](group::Lane& lane) {
    const std::span<std::byte> own = std::as_writable_bytes(std::span(outputs[index_of(lane.rank())]));
    const Reduction reduction{type_of<Number>(), ReduceOperation::kSum};
    if (!in_arena) {
      allreduce(lane, own, reduction);
      return;
    }
    const std::span<std::byte> place = arena(lane).first(own.size());
    std::copy(own.begin(), own.end(), place.begin());
    allreduce_in_arena(lane, 0, place.size(), reduction);
    std::copy(place.begin(), place.end(), own.begin());
    barrier(lane);
  };
  testing::run_ranks(size, layout, body, in_arena ? std::size_t{4} << 20 : 0);
  const std::vector<std::vector<int>> hosts = hosts_of(layout);
  for (int rank = 0; rank < size; ++rank) {
    // The model looks for chunks one element at a time.
    for (std::size_t i = 0; i < count; i += count < 5000 ? 1 : 977) {
      ASSERT_EQ(outputs[index_of(rank)][i], expected_allreduce(hosts, inputs, i))
          << "allreduce of " << count << (in_arena ? " in the arena, on " : ", on ") << layout.name << ", rank " << rank
          << ", element " << i << ", seed " << testing::test_seed();
    }
  }
}

template <typename Number>
void check_reduce_scatter(int size, const std::vector<std::size_t>& counts, const Arrangement& layout, Random& random) {
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const Inputs<Number> inputs = random_inputs<Number>(size, total, random);
  std::vector<std::size_t> sizes_bytes;
  Inputs<Number> outputs;
  for (const std::size_t count : counts) {
    sizes_bytes.push_back(count * sizeof(Number));
    outputs.emplace_back(count);
  }
  testing::run_ranks(size, layout, [&](group::Lane& lane) {
    reduce_scatter(lane, std::as_bytes(std::span(inputs[index_of(lane.rank())])), sizes_bytes,
                   std::as_writable_bytes(std::span(outputs[index_of(lane.rank())])),
                   {type_of<Number>(), ReduceOperation::kSum});
  });
  const std::vector<std::vector<int>> hosts = hosts_of(layout);
  std::size_t element = 0;
  for (int rank = 0; rank < size; ++rank) {
    for (std::size_t i = 0; i < counts[index_of(rank)]; ++i, ++element) {
      ASSERT_EQ(outputs[index_of(rank)][i], expected_reduce_scatter(hosts, inputs, element, rank))
          << "reduce-scatter of " << fmt::format("{}", fmt::join(counts, ", ")) << " on " << layout.name << ", rank "
          << rank << ", element " << i << ", seed " << testing::test_seed();
    }
  }
}

TEST(OrderOfSums, is_the_promised_one_for_an_allreduce_on_random_layouts) {
  Random random(testing::test_seed(), 31);
  for (int round = 0; round < 60 && !::testing::Test::HasFatalFailure(); ++round) {
    const int size = 2 + static_cast<int>(random.below(8));
    const Arrangement layout = random_layout(size, random);
    const std::uint64_t limits[] = {9, 5'000, 150'000};
    const std::size_t count = 1 + random.below(limits[random.below(3)]);
    const bool in_arena = random.below(3) == 0;
    if (random.below(2) == 0) {
      check_allreduce<double>(size, count, layout, random, in_arena);
    } else {
      check_allreduce<float>(size, count, layout, random, in_arena);
    }
  }
}

TEST(OrderOfSums, is_the_promised_one_for_a_reduce_scatter_on_random_layouts) {
  Random random(testing::test_seed(), 32);
  for (int round = 0; round < 100 && !::testing::Test::HasFatalFailure(); ++round) {
    const int size = 2 + static_cast<int>(random.below(8));
    const Arrangement layout = random_layout(size, random);
    const std::uint64_t limit = random.below(3) == 0 ? 20'000 : 50;
    std::vector<std::size_t> counts(index_of(size));
    for (std::size_t& count : counts) count = random.below(4) == 0 ? 0 : random.below(limit);
    if (random.below(2) == 0) {
      check_reduce_scatter<double>(size, counts, layout, random);
    } else {
      check_reduce_scatter<float>(size, counts, layout, random);
    }
  }
}

TEST(OrderOfSums, of_three_ranks_over_two_hosts_is_the_hosts_own_one) {
  // In rank order of a host, 1 + 2^-53 is 1, and 2^-53 + 2^-53 is not lost.
  constexpr double kSmall = 0x1p-53;
  const struct {
    std::vector<std::string> host_ids;
    double sum;
  } rows[] = {{{"a", "a", "b"}, (1.0 + kSmall) + kSmall},
              {{"a", "b", "b"}, 1.0 + (kSmall + kSmall)},
              {{"a", "b", "a"}, (1.0 + kSmall) + kSmall}};
  for (const auto& row : rows) {
    testing::run_ranks(3, {"", row.host_ids}, [&](group::Lane& lane) {
      const std::vector<double> input(3, lane.rank() == 0 ? 1.0 : kSmall);
      double output = 0;
      const std::vector<std::size_t> sizes_bytes(3, sizeof output);
      reduce_scatter(lane, std::as_bytes(std::span(input)), sizes_bytes, std::as_writable_bytes(std::span(&output, 1)),
                     {DataType::kFloat64, ReduceOperation::kSum});
      EXPECT_EQ(output, row.sum) << fmt::format("{}", fmt::join(row.host_ids, " ")) << ", rank " << lane.rank();
      std::vector<double> everywhere = input;
      allreduce(lane, std::as_writable_bytes(std::span(everywhere)), {DataType::kFloat64, ReduceOperation::kSum});
      EXPECT_EQ(everywhere, std::vector<double>(3, row.sum)) << lane.rank();
    });
  }
}

}  // namespace
}  // namespace gyre::collectives
