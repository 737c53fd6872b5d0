// Why: every training step stands on allreduce being right for every type, operation, size and arrangement of ranks,
// and on all ranks holding the same bits afterwards.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "gyre/base/random.h"
#include "gyre/collectives/internal/links/link_allreduce.h"
#include "gyre/collectives/internal/shared/shared_layout.h"
#include "gyre/collectives/internal/test_support.h"
#include "gyre/collectives/kernels.h"
#include "gyre/collectives/schedule/chunks.h"
#include "gyre/net/frame.h"

namespace gyre::collectives {
namespace {

using testing::Arrangement;

/// One allreduce: an input and an output per rank.
struct Case {
  Reduction reduction;
  std::size_t count = 0;
  std::vector<Bytes> inputs;
  std::vector<Bytes> outputs;

  std::string describe() const {
    return fmt::format("{} {} of {} elements, prescale {}, postscale {}", name(reduction.type),
                       name(reduction.operation), count, reduction.prescale, reduction.postscale);
  }
};

Case make_case(int size, const Reduction& reduction, std::size_t count, std::uint64_t seed) {
  Case made{reduction, count, {}, std::vector<Bytes>(static_cast<std::size_t>(size))};
  for (int r = 0; r < size; ++r) {
    made.inputs.push_back(testing::random_elements(reduction.type, count, seed, static_cast<std::uint64_t>(r)));
  }
  return made;
}

/// Runs the cases one after the other on one lane of `size` ranks.
void run_cases(int size, const Arrangement& arrangement, std::vector<Case>& cases) {
  testing::run_ranks(size, arrangement, [&](group::Lane& lane) {
    const auto rank = static_cast<std::size_t>(lane.rank());
    for (Case& one : cases) {
      one.outputs[rank] = one.inputs[rank];
      allreduce(lane, one.outputs[rank], one.reduction);
    }
  });
}

void expect_right(const std::vector<Case>& cases, int size, const Arrangement& arrangement) {
  for (const Case& one : cases) {
    const std::string where =
        fmt::format("{}; {} ranks, {}; seed {}", one.describe(), size, arrangement.name, testing::test_seed());
    EXPECT_EQ(testing::difference_from_reference(one.inputs, one.outputs[0], one.reduction), "") << where;
    for (const Bytes& output : one.outputs) EXPECT_TRUE(output == one.outputs[0]) << "ranks differ: " << where;
  }
}

bool is_defined(DataType type, ReduceOperation operation) {
  return type != DataType::kBoolean || operation != ReduceOperation::kAverage;
}

class AllreduceOfRanks : public ::testing::TestWithParam<int> {};

TEST_P(AllreduceOfRanks, gives_the_reference_and_the_same_bits_everywhere_for_every_type_and_operation) {
  const int size = GetParam();
  Random random(testing::test_seed(), static_cast<std::uint64_t>(size));
  for (const Arrangement& arrangement : testing::arrangements(size)) {
    std::vector<Case> cases;
    for (const DataType type : all_data_types()) {
      for (const ReduceOperation operation : all_reduce_operations()) {
        if (!is_defined(type, operation)) continue;
        for (const std::size_t limit : {2, 40, 8'000}) {
          cases.push_back(make_case(size, {type, operation}, random.below(limit), random.next_u64()));
        }
      }
      // Long enough for the ring, where it goes over links.
      for (const ReduceOperation operation : {ReduceOperation::kSum, ReduceOperation::kAverage}) {
        if (!is_defined(type, operation)) continue;
        const std::size_t count = (140'000 + random.below(20'000)) / size_of(type);
        cases.push_back(make_case(size, {type, operation}, count, random.next_u64()));
      }
    }
    run_cases(size, arrangement, cases);
    expect_right(cases, size, arrangement);
  }
}

TEST_P(AllreduceOfRanks, is_right_around_the_borders_of_slots_pieces_and_chunks) {
  const int size = GetParam();
  constexpr std::size_t kPiece = internal::kSlotBytes / sizeof(float);
  const std::size_t ranks = static_cast<std::size_t>(size);
  Random random(testing::test_seed(), 100);
  for (const Arrangement& arrangement : {testing::one_host(size), testing::a_host_each(size)}) {
    std::vector<Case> cases;
    for (const std::size_t count : {ranks - 1, ranks, ranks + 1, kPiece - 1, kPiece, kPiece + 1, 2 * kPiece + 17,
                                    4 * kPiece + ranks * kPiece / 3}) {
      cases.push_back(make_case(size, {DataType::kFloat32, ReduceOperation::kAverage}, count, random.next_u64()));
    }
    run_cases(size, arrangement, cases);
    expect_right(cases, size, arrangement);
  }
}

TEST(Allreduce, of_more_ranks_than_use_mailboxes_is_right) {
  constexpr int kRanks = 70;
  Random random(testing::test_seed(), 101);
  std::vector<Case> cases;
  for (const std::size_t count : {1, 16, 17, 1'000}) {
    cases.push_back(make_case(kRanks, {DataType::kFloat32, ReduceOperation::kSum}, count, random.next_u64()));
    cases.push_back(make_case(kRanks, {DataType::kBfloat16, ReduceOperation::kAverage}, count, random.next_u64()));
  }
  run_cases(kRanks, testing::one_host(kRanks), cases);
  expect_right(cases, kRanks, testing::one_host(kRanks));
}

TEST_P(AllreduceOfRanks, applies_both_scales) {
  const int size = GetParam();
  for (const Arrangement& arrangement : testing::arrangements(size)) {
    std::vector<Case> cases;
    for (const DataType type : all_data_types()) {
      if (!is_floating_point(type)) continue;
      for (const ReduceOperation operation : all_reduce_operations()) {
        cases.push_back(make_case(size, {type, operation, -0.5, 1.25}, 9000, testing::test_seed()));
      }
    }
    run_cases(size, arrangement, cases);
    expect_right(cases, size, arrangement);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllreduceOfRanks, ::testing::Range(1, 9));

TEST(Allreduce, of_integers_scales_each_contribution_in_its_type_first) {
  // 10 · 0.25 is 2 (toward zero) on each of 3 ranks; their sum 6, times 10.
  for (const Arrangement& arrangement : testing::arrangements(3)) {
    testing::run_ranks(3, arrangement, [&](group::Lane& lane) {
      std::vector<std::int32_t> values(5000, 10);
      allreduce(lane, std::as_writable_bytes(std::span(values)), {DataType::kInt32, ReduceOperation::kSum, 0.25, 10.0});
      EXPECT_EQ(std::count(values.begin(), values.end(), 60), 5000) << arrangement.name << ": " << values[0];
    });
  }
}

TEST(Allreduce, refuses_to_scale_or_average_booleans) {
  testing::run_ranks(2, testing::one_host(2), [&](group::Lane& lane) {
    Bytes flags(3);
    try {
      allreduce(lane, flags, {DataType::kBoolean, ReduceOperation::kAverage});
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  });
}

TEST(Allreduce, on_one_host_sums_in_rank_order) {
  // ((r0 + r1) + r2) + …, bit for bit: what a process that plays all ranks computes.
  const int size = 5;
  for (const std::size_t count : {std::size_t{100}, std::size_t{300'000}}) {
    std::vector<Case> cases{make_case(size, {DataType::kFloat32, ReduceOperation::kSum}, count, testing::test_seed())};
    run_cases(size, testing::one_host(size), cases);
    std::vector<float> expected(count);
    for (int r = 0; r < size; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        float value = 0;
        std::memcpy(&value, cases[0].inputs[static_cast<std::size_t>(r)].data() + i * sizeof value, sizeof value);
        expected[i] = r == 0 ? value : expected[i] + value;
      }
    }
    EXPECT_EQ(std::memcmp(expected.data(), cases[0].outputs[0].data(), count * sizeof(float)), 0) << count;
  }
}

TEST(Allreduce, repeated_gives_the_same_bits) {
  const int size = 6;
  for (const Arrangement& arrangement : testing::arrangements(size)) {
    std::vector<Case> cases;
    for (const std::size_t count : {std::size_t{50}, std::size_t{200'000}}) {
      const Reduction reduction{DataType::kFloat32, ReduceOperation::kAverage};
      cases.push_back(make_case(size, reduction, count, testing::test_seed()));
      cases.push_back(cases.back());
    }
    run_cases(size, arrangement, cases);
    EXPECT_TRUE(cases[0].outputs[0] == cases[1].outputs[0]) << arrangement.name;
    EXPECT_TRUE(cases[2].outputs[0] == cases[3].outputs[0]) << arrangement.name;
  }
}

/// What a rank sends of a ring among `size` over a buffer whose chunks are equal: 2(n-1)/n of it, and its frames'
/// headers.
std::uint64_t ring_bytes(std::size_t size, std::size_t bytes) {
  const std::size_t chunk = bytes / size;
  const std::size_t piece = internal::ring_piece_bytes(chunk);
  const std::size_t frames = (chunk + piece - 1) / piece;
  return 2 * (size - 1) * (chunk + frames * net::kFrameHeaderBytes);
}

TEST(Allreduce, by_ring_sends_exactly_its_share) {
  for (const int size : {2, 3, 4, 7}) {
    const std::size_t ranks = static_cast<std::size_t>(size);
    const std::size_t bytes = ranks * 96 * 1024;  // Enough for the ring to be chosen.
    testing::run_ranks(size, testing::a_host_each(size), [&](group::Lane& lane) {
      Bytes buffer(bytes);
      const std::uint64_t before = lane.counters().bytes_sent;
      allreduce(lane, buffer, {});
      EXPECT_EQ(lane.counters().bytes_sent - before, ring_bytes(ranks, bytes)) << size;
    });
  }
}

TEST(Allreduce, in_the_arena_reduces_every_ranks_copy) {
  for (const int size : {1, 2, 3, 4, 8}) {
    for (const Arrangement& arrangement :
         {testing::one_host(size), testing::a_host_each(size), testing::arrangements(size).back()}) {
      constexpr std::size_t kOffset = 4096 + 64;
      constexpr std::size_t kCount = 64 * 1024;
      Case one = make_case(size, {DataType::kFloat32, ReduceOperation::kSum, 1.0, 0.5}, kCount, testing::test_seed());
      Case small = make_case(size, {DataType::kBfloat16, ReduceOperation::kMax}, 32, testing::test_seed());
      testing::run_ranks(
          size, arrangement,
          [&](group::Lane& lane) {
            const auto rank = static_cast<std::size_t>(lane.rank());
            for (Case* each : {&one, &small}) {
              const std::span<std::byte> place = arena(lane).subspan(kOffset, each->inputs[rank].size());
              std::copy(each->inputs[rank].begin(), each->inputs[rank].end(), place.begin());
              allreduce_in_arena(lane, kOffset, place.size(), each->reduction);
              each->outputs[rank].assign(place.begin(), place.end());
            }
          },
          std::size_t{1} << 20);
      expect_right({one, small}, size, arrangement);
    }
  }
}

TEST(Allreduce, keeps_its_order_through_thousands_of_small_collectives) {
  // Slots of the mailboxes are used again and again: a rank that ran ahead would read or overwrite the wrong ones.
  for (const int size : {2, 3, 8}) {
    testing::run_ranks(size, testing::one_host(size), [&](group::Lane& lane) {
      for (std::int64_t i = 0; i < 2000; ++i) {
        std::int64_t value = i * (lane.rank() + 1);
        allreduce(lane, std::as_writable_bytes(std::span(&value, 1)), {DataType::kInt64, ReduceOperation::kSum});
        ASSERT_EQ(value, i * size * (size + 1) / 2) << "collective " << i;
      }
    });
  }
}

}  // namespace
}  // namespace gyre::collectives
