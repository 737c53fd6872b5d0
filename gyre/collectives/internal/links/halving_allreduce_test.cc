// Why: between many hosts most buckets go this way; it must sum rightly for every number of hosts and every type, and
// leave the same bits everywhere, also where the processes of a host share the work.
#include "gyre/collectives/internal/links/halving_allreduce.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gyre/base/random.h"
#include "gyre/collectives/internal/links/hierarchical_allreduce.h"
#include "gyre/collectives/internal/shared/shared_room.h"
#include "gyre/collectives/internal/test_support.h"

namespace gyre::collectives::internal {
namespace {

using testing::Arrangement;
using Body = std::function<void(group::Lane&, std::uint64_t collective, std::span<std::byte>, const ReductionPlan&)>;

void expect_right(int size, const Arrangement& arrangement, const Reduction& reduction, std::size_t count,
                  const Body& body) {
  const std::string where = fmt::format("{} {} of {} elements, {} ranks, {}; seed {}", name(reduction.type),
                                        name(reduction.operation), count, size, arrangement.name, testing::test_seed());
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < size; ++rank) {
    const auto stream = static_cast<std::uint64_t>(rank);
    inputs.push_back(testing::random_elements(reduction.type, count, testing::test_seed() + count, stream));
  }
  std::vector<Bytes> outputs = inputs;
  testing::run_ranks(size, arrangement, [&](group::Lane& lane) {
    const ReductionPlan plan = plan_reduction(reduction, size);
    Bytes& buffer = outputs[static_cast<std::size_t>(lane.rank())];
    const std::uint64_t collective = lane.begin_collective();
    body(lane, collective, buffer, plan);
  });
  EXPECT_EQ(testing::difference_from_reference(inputs, outputs[0], reduction), "") << where;
  for (const Bytes& output : outputs) EXPECT_TRUE(output == outputs[0]) << "ranks differ: " << where;
}

std::vector<Reduction> reductions() {
  return {{.type = DataType::kFloat32, .operation = ReduceOperation::kAverage},
          {.type = DataType::kFloat32, .operation = ReduceOperation::kSum, .prescale = 0.5, .postscale = 3},
          {.type = DataType::kFloat16, .operation = ReduceOperation::kSum},
          {.type = DataType::kBfloat16, .operation = ReduceOperation::kAverage},
          {.type = DataType::kInt64, .operation = ReduceOperation::kSum},
          {.type = DataType::kFloat64, .operation = ReduceOperation::kMax}};
}

TEST(Halving, sums_for_any_number_of_ranks_on_a_host_each) {
  Random random(testing::test_seed(), 73);
  for (int size = 2; size <= 9; ++size) {
    for (const Reduction& reduction : reductions()) {
      for (const std::size_t limit : {3, 40, 60'000}) {
        expect_right(
            size, testing::a_host_each(size), reduction, random.below(limit) + 1,
            [](group::Lane& lane, std::uint64_t collective, std::span<std::byte> buffer, const ReductionPlan& plan) {
              allreduce_all_in_chunks(lane, collective, buffer, plan, LinkSchedule::kHalving);
            });
      }
    }
  }
}

TEST(Halving, joins_what_hosts_of_several_ranks_have_summed) {
  Random random(testing::test_seed(), 74);
  for (const int size : {5, 8}) {
    for (const Arrangement& arrangement : testing::host_arrangements(size)) {
      for (const Reduction& reduction : reductions()) {
        expect_right(
            size, arrangement, reduction, random.below(60'000) + 1,
            [](group::Lane& lane, std::uint64_t collective, std::span<std::byte> buffer, const ReductionPlan& plan) {
              SharedRoom room(lane, collective);
              allreduce_by_hosts(lane, room, collective, buffer, plan, LinkSchedule::kHalving);
            });
      }
    }
  }
}

TEST(Halving, prepares_and_publishes_every_byte_once) {
  constexpr std::size_t kCount = 70'001;
  for (const int size : {2, 4, 5, 7}) {
    testing::run_ranks(size, testing::a_host_each(size), [&](group::Lane& lane) {
      std::vector<std::int32_t> values(kCount, 1);
      std::vector<std::uint8_t> prepared(kCount);
      std::vector<std::uint8_t> published(kCount);
      const auto counting = [](std::vector<std::uint8_t>& calls) {
        return [&calls](std::size_t offset, std::size_t bytes) {
          for (std::size_t i = offset / 4; i < (offset + bytes) / 4; ++i) ++calls[i];
        };
      };
      allreduce_by_halving(lane, lane.begin_collective(), everybody(lane.topology()),
                           std::as_writable_bytes(std::span(values)), {.type = DataType::kInt32},
                           {.prepare = counting(prepared), .publish = counting(published)});
      EXPECT_EQ(values, std::vector<std::int32_t>(kCount, size));
      EXPECT_EQ(prepared, std::vector<std::uint8_t>(kCount, 1));
      EXPECT_EQ(published, std::vector<std::uint8_t>(kCount, 1));
    });
  }
}

}  // namespace
}  // namespace gyre::collectives::internal
