// Why: with several hosts an allreduce takes three stages in two kinds of memory. It must give what it gives anywhere
// else, for every type, operation, size and place of the ranks, and send no more than it must.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "gyre/base/random.h"
#include "gyre/collectives/internal/index_of.h"
#include "gyre/collectives/internal/links/link_allreduce.h"
#include "gyre/collectives/internal/test_support.h"
#include "gyre/collectives/select.h"
#include "gyre/net/frame.h"

namespace gyre::collectives {
namespace {

using internal::index_of;
using testing::Arrangement;

constexpr std::size_t kArenaBytes = std::size_t{2} << 20;
constexpr std::size_t kArenaOffsetBytes = 4096 + 64;

/// One allreduce: an input and an output per rank.
struct Case {
  Reduction reduction;
  std::vector<Bytes> inputs;
  std::vector<Bytes> outputs;
};

Case make_case(int size, const Reduction& reduction, std::size_t count, std::uint64_t seed) {
  Case made{reduction, {}, std::vector<Bytes>(index_of(size))};
  for (int r = 0; r < size; ++r) {
    made.inputs.push_back(testing::random_elements(reduction.type, count, seed, static_cast<std::uint64_t>(r)));
  }
  return made;
}

void reduce_here(group::Lane& lane, Case& one, bool in_arena) {
  Bytes& output = one.outputs[index_of(lane.rank())];
  output = one.inputs[index_of(lane.rank())];
  if (!in_arena) {
    allreduce(lane, output, one.reduction);
    return;
  }
  const std::span<std::byte> place = arena(lane).subspan(kArenaOffsetBytes, output.size());
  std::copy(output.begin(), output.end(), place.begin());
  allreduce_in_arena(lane, kArenaOffsetBytes, place.size(), one.reduction);
  std::copy(place.begin(), place.end(), output.begin());
  // Nobody may see the next case's contributions before all have read this one's result.
  barrier(lane);
}

void run_cases(int size, const Arrangement& arrangement, std::vector<Case>& cases, bool in_arena) {
  const auto body = [&](group::Lane& lane) {
    for (Case& one : cases) reduce_here(lane, one, in_arena);
  };
  testing::run_ranks(size, arrangement, body, in_arena ? kArenaBytes : 0);
}

void expect_right(const std::vector<Case>& cases, const Arrangement& arrangement) {
  for (const Case& one : cases) {
    const std::string where =
        fmt::format("{} {} of {} bytes; {} ranks, {}; seed {}", name(one.reduction.type), name(one.reduction.operation),
                    one.inputs[0].size(), one.inputs.size(), arrangement.name, testing::test_seed());
    EXPECT_EQ(testing::difference_from_reference(one.inputs, one.outputs[0], one.reduction), "") << where;
    for (const Bytes& output : one.outputs) EXPECT_TRUE(output == one.outputs[0]) << "ranks differ: " << where;
  }
}

class HostsOfRanks : public ::testing::TestWithParam<int> {};

TEST_P(HostsOfRanks, reduce_every_type_by_every_operation_in_private_memory_and_in_the_arena) {
  const int size = GetParam();
  Random random(testing::test_seed(), static_cast<std::uint64_t>(size));
  for (const Arrangement& arrangement : testing::host_arrangements(size)) {
    for (const bool in_arena : {false, true}) {
      std::vector<Case> cases;
      for (const DataType type : all_data_types()) {
        for (const ReduceOperation operation : all_reduce_operations()) {
          if (type == DataType::kBoolean && operation == ReduceOperation::kAverage) continue;
          // Small, and large enough for rings where all elements of a type take the same way there.
          const bool each = operation == ReduceOperation::kSum || operation == ReduceOperation::kAverage;
          const bool large = each || type == DataType::kFloat32 || type == DataType::kInt8;
          for (const std::size_t bytes : {random.below(5000), large ? 132'000 + random.below(9'000) : 64}) {
            // In the arena whole cache lines.
            const std::size_t whole = in_arena ? bytes / 64 * 64 : bytes / size_of(type) * size_of(type);
            cases.push_back(make_case(size, {type, operation}, whole / size_of(type), random.next_u64()));
          }
        }
      }
      run_cases(size, arrangement, cases, in_arena);
      expect_right(cases, arrangement);
    }
  }
}

TEST_P(HostsOfRanks, apply_both_scales) {
  const int size = GetParam();
  for (const Arrangement& arrangement : testing::host_arrangements(size)) {
    for (const bool in_arena : {false, true}) {
      std::vector<Case> cases;
      for (const std::size_t count : {std::size_t{1600}, std::size_t{64'000}}) {
        cases.push_back(make_case(size, {DataType::kFloat32, ReduceOperation::kSum, -0.5, 1.25}, count, 1));
        cases.push_back(make_case(size, {DataType::kFloat64, ReduceOperation::kMin, -2.0, 0.5}, count, 2));
      }
      run_cases(size, arrangement, cases, in_arena);
      expect_right(cases, arrangement);
    }
  }
}

TEST_P(HostsOfRanks, give_the_same_bits_in_the_arena_as_in_private_memory_and_when_run_again) {
  const int size = GetParam();
  for (const Arrangement& arrangement : testing::host_arrangements(size)) {
    std::vector<Case> cases;
    for (const std::size_t count : {std::size_t{1600}, std::size_t{160'000}}) {
      cases.push_back(make_case(size, {DataType::kFloat32, ReduceOperation::kAverage}, count, testing::test_seed()));
    }
    std::vector<Case> again = cases;
    std::vector<Case> in_arena = cases;
    run_cases(size, arrangement, cases, false);
    run_cases(size, arrangement, again, false);
    run_cases(size, arrangement, in_arena, true);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      EXPECT_TRUE(cases[i].outputs[0] == again[i].outputs[0]) << arrangement.name;
      EXPECT_TRUE(cases[i].outputs[0] == in_arena[i].outputs[0]) << arrangement.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostsOfRanks, ::testing::Values(3, 4, 5, 8));

/// What has left each host over links, by its name, during one allreduce of `bytes`.
std::map<std::string, std::uint64_t> bytes_leaving(int size, const Arrangement& arrangement, std::size_t bytes,
                                                   bool in_arena, WireFormat wire = WireFormat::kNative) {
  std::vector<std::uint64_t> sent(index_of(size));
  testing::run_ranks(
      size, arrangement,
      [&](group::Lane& lane) {
        Case one = make_case(size, {.type = DataType::kFloat32, .wire = wire}, bytes / sizeof(float), 1);
        const std::uint64_t before = lane.counters().bytes_sent;
        Bytes buffer(bytes);
        if (in_arena) {
          allreduce_in_arena(lane, kArenaOffsetBytes, bytes, one.reduction);
        } else {
          allreduce(lane, buffer, one.reduction);
        }
        sent[index_of(lane.rank())] = lane.counters().bytes_sent - before;
      },
      kArenaBytes);
  std::map<std::string, std::uint64_t> leaving;
  for (std::size_t r = 0; r < sent.size(); ++r) leaving[arrangement.host_ids[r]] += sent[r];
  return leaving;
}

TEST(Hosts, let_no_more_leave_than_one_rank_with_the_hosts_sum_would_send) {
  // 2(H-1)/H of the buffer, exactly, and frames' headers of at most 1 % of that.
  struct Row {
    std::vector<std::string> host_ids;
    std::uint64_t hosts;
    std::size_t slices;
  };
  const Row rows[] = {
      {{"a", "a", "b", "b"}, 2, 2},           {{"a", "b", "a", "b"}, 2, 2},
      {{"a", "a", "b", "b", "c", "c"}, 3, 2}, {{"a", "a", "a", "b"}, 2, 1},
      {{"a", "b", "b", "c", "c", "c"}, 3, 1}, {{"a", "a", "a", "a", "b", "b", "b", "b"}, 2, 4},
  };
  constexpr std::size_t kBytes = std::size_t{3} << 18;  // Divisible by all hosts and slices.
  for (const Row& row : rows) {
    const auto size = static_cast<int>(row.host_ids.size());
    const Arrangement arrangement{fmt::format("{}", fmt::join(row.host_ids, " ")), row.host_ids};
    const std::uint64_t payload = 2 * (row.hosts - 1) * kBytes / row.hosts;
    const std::size_t chunk = kBytes / row.slices / row.hosts;
    const std::size_t piece = internal::ring_piece_bytes(chunk);
    const std::uint64_t frames = row.slices * 2 * (row.hosts - 1) * ((chunk + piece - 1) / piece);
    EXPECT_LE(frames * net::kFrameHeaderBytes * 100, payload);
    for (const bool in_arena : {false, true}) {
      const auto leaving = bytes_leaving(size, arrangement, kBytes, in_arena);
      EXPECT_EQ(leaving.size(), row.hosts);
      for (const auto& [host, bytes] : leaving) {
        EXPECT_EQ(bytes, payload + frames * net::kFrameHeaderBytes) << arrangement.name << ", host " << host;
      }
      for (const auto& [host, bytes] : bytes_leaving(size, arrangement, kBytes, in_arena, WireFormat::kBfloat16)) {
        EXPECT_EQ(bytes, payload / 2 + frames * net::kFrameHeaderBytes) << arrangement.name << ", host " << host;
      }
    }
  }
}

TEST(Hosts, two_of_them_sum_to_the_same_bits_wherever_an_element_lies_in_a_buffer) {
  // What lets the engine fuse operations by chance. Alone, and behind others that make the buffer another algorithm's.
  const Arrangement two_by_two{"two by two", {"a", "a", "b", "b"}};
  const Arrangement two{"two", {"a", "b"}};
  for (const Arrangement& arrangement : {two_by_two, two}) {
    const auto size = static_cast<int>(arrangement.host_ids.size());
    for (const DataType type : {DataType::kFloat32, DataType::kFloat64, DataType::kInt8}) {
      const Reduction reduction{type, ReduceOperation::kAverage};
      const std::size_t count = 3001;
      std::vector<Case> alone{make_case(size, reduction, count, testing::test_seed())};
      run_cases(size, arrangement, alone, false);
      for (const std::size_t before : {std::size_t{17}, std::size_t{40'000}, std::size_t{300'000}}) {
        std::vector<Case> fused{make_case(size, reduction, before, 1)};
        for (std::size_t r = 0; r < index_of(size); ++r) {
          fused[0].inputs[r].insert(fused[0].inputs[r].end(), alone[0].inputs[r].begin(), alone[0].inputs[r].end());
        }
        run_cases(size, arrangement, fused, false);
        const Bytes& output = fused[0].outputs[0];
        const std::span<const std::byte> tail = std::span(output).subspan(before * size_of(type));
        EXPECT_TRUE(std::equal(tail.begin(), tail.end(), alone[0].outputs[0].begin()))
            << name(type) << " behind " << before << " elements, " << arrangement.name;
      }
    }
  }
}

TEST(Hosts, exchange_a_small_buffer_once_per_round) {
  const Arrangement arrangement{"two by two", {"a", "a", "b", "b"}};
  for (const auto& [host, bytes] : bytes_leaving(4, arrangement, 4096, true)) {
    EXPECT_EQ(bytes, 4096 + net::kFrameHeaderBytes) << host;
  }
}

TEST(Hosts, leave_broadcasts_to_one_rank_each) {
  const Arrangement arrangement{"mixed", {"a", "b", "a", "b", "b"}};
  constexpr std::size_t kBytes = 10'000;
  for (int root = 0; root < 5; ++root) {
    std::atomic<std::uint64_t> sent = 0;
    testing::run_ranks(5, arrangement, [&](group::Lane& lane) {
      const Bytes expected = testing::random_elements(DataType::kUint8, kBytes, testing::test_seed(), 7);
      Bytes buffer = lane.rank() == root ? expected : Bytes(kBytes);
      broadcast(lane, buffer, root);
      EXPECT_TRUE(buffer == expected);
      sent += lane.counters().bytes_sent;
    });
    EXPECT_EQ(sent, kBytes + net::kFrameHeaderBytes) << "root " << root;
  }
}

TEST(Hosts, keep_their_order_through_many_collectives_of_all_sizes) {
  // Mailboxes and links are used again and again: a rank that ran ahead would read or overwrite the wrong bytes.
  const Arrangement arrangement{"mixed", {"a", "b", "a", "b", "b"}};
  Random sizes(testing::test_seed(), 3);
  std::vector<std::size_t> counts(150);
  for (std::size_t& count : counts) count = 1 + sizes.below(sizes.below(10) == 0 ? 90'000 : 300);
  testing::run_ranks(5, arrangement, [&](group::Lane& lane) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      std::vector<std::int32_t> values(counts[i], static_cast<std::int32_t>(i) + lane.rank());
      allreduce(lane, std::as_writable_bytes(std::span(values)), {DataType::kInt32, ReduceOperation::kSum});
      const auto expected = static_cast<std::int32_t>(5 * i + 10);
      ASSERT_EQ(std::count(values.begin(), values.end(), expected), static_cast<std::ptrdiff_t>(values.size())) << i;
    }
  });
}

}  // namespace
}  // namespace gyre::collectives
