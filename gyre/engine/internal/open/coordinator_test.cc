// The coordinator decides what runs when; being pure, every rule of it can be stated as a table.
#include "gyre/engine/internal/open/coordinator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/engine/internal/open/fusion.h"
#include "gyre/engine/internal/open/mismatch.h"
#include "gyre/engine/internal/open/negotiation.h"

namespace gyre::engine::internal {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

Signature floats(Shape shape) {
  return {.kind = OperationKind::kAllreduce, .type = DataType::kFloat32, .shape = std::move(shape)};
}

std::vector<std::vector<std::string>> names(const Order& order) {
  std::vector<std::vector<std::string>> result;
  for (const Bucket& bucket : order.buckets) {
    result.emplace_back();
    for (const OrderedOperation& operation : bucket) result.back().push_back(operation.name);
  }
  return result;
}

class CoordinatorTest : public testing::Test {
 protected:
  Coordinator make(int size, std::size_t fusion_bytes = 0, int hosts = 1) {
    return Coordinator({size, fusion_bytes, hosts});
  }
  void announce_everywhere(Coordinator& coordinator, int size, const std::string& name, const Signature& signature) {
    for (int rank = 0; rank < size; ++rank) coordinator.announce(rank, {name, signature}, now_);
  }

  SteadyClock::time_point now_ = SteadyClock::now();
};

TEST_F(CoordinatorTest, an_operation_is_ordered_when_the_last_rank_announces_it) {
  Coordinator coordinator = make(3);
  coordinator.announce(2, {"a", floats({4})}, now_);
  coordinator.announce(0, {"a", floats({4})}, now_);
  EXPECT_TRUE(coordinator.take_order().empty());
  coordinator.announce(1, {"a", floats({4})}, now_);
  EXPECT_THAT(names(coordinator.take_order()), ElementsAre(ElementsAre("a")));
  EXPECT_TRUE(coordinator.take_order().empty());
}

TEST_F(CoordinatorTest, operations_leave_in_the_order_in_which_they_became_complete) {
  Coordinator coordinator = make(2);
  coordinator.announce(0, {"a", floats({1})}, now_);
  coordinator.announce(0, {"b", floats({1})}, now_);
  coordinator.announce(1, {"b", floats({1})}, now_);
  coordinator.announce(1, {"a", floats({1})}, now_);
  EXPECT_THAT(names(coordinator.take_order()), ElementsAre(ElementsAre("b"), ElementsAre("a")));
}

TEST_F(CoordinatorTest, neighbours_of_one_type_share_a_bucket_up_to_the_limit) {
  Coordinator coordinator = make(2, 40);
  announce_everywhere(coordinator, 2, "a", floats({4}));
  announce_everywhere(coordinator, 2, "b", floats({6}));
  announce_everywhere(coordinator, 2, "c", floats({1}));
  Signature doubles = floats({1});
  doubles.type = DataType::kFloat64;
  announce_everywhere(coordinator, 2, "d", doubles);
  announce_everywhere(coordinator, 2, "huge", floats({100}));
  EXPECT_THAT(names(coordinator.take_order()),
              ElementsAre(ElementsAre("a", "b"), ElementsAre("c"), ElementsAre("d"), ElementsAre("huge")));
}

TEST_F(CoordinatorTest, without_fusion_every_tensor_travels_alone) {
  Coordinator coordinator = make(2, 0);
  announce_everywhere(coordinator, 2, "a", floats({1}));
  announce_everywhere(coordinator, 2, "b", floats({1}));
  EXPECT_THAT(names(coordinator.take_order()), ElementsAre(ElementsAre("a"), ElementsAre("b")));
}

TEST_F(CoordinatorTest, only_declared_groups_fuse_where_bits_would_depend_on_timing) {
  Coordinator coordinator = make(2, 1000, 3);
  announce_everywhere(coordinator, 2, "a", floats({1}));
  announce_everywhere(coordinator, 2, "b", floats({1}));
  Signature grouped = floats({1});
  grouped.group = "g";
  grouped.group_size = 2;
  announce_everywhere(coordinator, 2, "x", grouped);
  announce_everywhere(coordinator, 2, "y", grouped);
  EXPECT_THAT(names(coordinator.take_order()), ElementsAre(ElementsAre("a"), ElementsAre("b"), ElementsAre("x", "y")));
}

TEST_F(CoordinatorTest, what_gives_the_same_bits_anywhere_in_a_bucket_fuses_over_hosts_too) {
  const auto fuses = [&](DataType type, ReduceOperation operation, int hosts) {
    Signature signature = floats({1});
    signature.type = type;
    signature.operation = operation;
    Coordinator coordinator = make(2, 1000, hosts);
    announce_everywhere(coordinator, 2, "a", signature);
    announce_everywhere(coordinator, 2, "b", signature);
    return coordinator.take_order().buckets.size() == 1;
  };
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64}) {
    EXPECT_TRUE(fuses(type, ReduceOperation::kAverage, 2));
    EXPECT_TRUE(fuses(type, ReduceOperation::kProduct, 2));
    EXPECT_TRUE(fuses(type, ReduceOperation::kMax, 3));
    EXPECT_FALSE(fuses(type, ReduceOperation::kSum, 3));
    EXPECT_FALSE(fuses(type, ReduceOperation::kProduct, 3));
  }
  EXPECT_TRUE(fuses(DataType::kBfloat16, ReduceOperation::kSum, 1));
  EXPECT_TRUE(fuses(DataType::kInt8, ReduceOperation::kAverage, 3));
  EXPECT_TRUE(fuses(DataType::kBoolean, ReduceOperation::kMin, 3));
}

TEST_F(CoordinatorTest, a_group_waits_for_all_its_members) {
  Coordinator coordinator = make(2, 1000);
  Signature grouped = floats({2});
  grouped.group = "g";
  grouped.group_size = 2;
  announce_everywhere(coordinator, 2, "y", grouped);
  EXPECT_TRUE(coordinator.take_order().empty());
  announce_everywhere(coordinator, 2, "x", grouped);
  EXPECT_THAT(names(coordinator.take_order()), ElementsAre(ElementsAre("y", "x")));
}

TEST_F(CoordinatorTest, a_group_with_a_mismatch_fails_as_a_whole) {
  Coordinator coordinator = make(2, 1000);
  Signature grouped = floats({2});
  grouped.group = "g";
  grouped.group_size = 2;
  announce_everywhere(coordinator, 2, "x", grouped);
  Signature other = grouped;
  other.shape = {3};
  coordinator.announce(0, {"y", grouped}, now_);
  coordinator.announce(1, {"y", other}, now_);
  const Order order = coordinator.take_order();
  EXPECT_TRUE(order.buckets.empty());
  ASSERT_EQ(order.refusals.size(), 2U);
  EXPECT_EQ(order.refusals[0].name, "y");
  EXPECT_EQ(order.refusals[1].name, "x");
  EXPECT_THAT(order.refusals[1].message, HasSubstr("[2] on rank 0; allreduce of float32 [3] on rank 1"));
}

TEST_F(CoordinatorTest, a_group_of_different_sizes_fails_with_all_that_is_announced_of_it) {
  Coordinator coordinator = make(3, 1000);
  Signature of_two = floats({2});
  of_two.group = "g";
  of_two.group_size = 2;
  Signature of_three = of_two;
  of_three.group_size = 3;
  for (int turn = 0; turn < 2; ++turn) {
    for (const char* name : {"x", "y", "z"}) coordinator.announce(0, {name, of_three}, now_);
    for (const char* name : {"x", "y"}) coordinator.announce(1, {name, of_two}, now_);
    EXPECT_TRUE(coordinator.take_order().refusals.empty());
    for (const char* name : {"x", "y", "z"}) coordinator.announce(2, {name, of_three}, now_);
    const Order order = coordinator.take_order();
    EXPECT_TRUE(order.buckets.empty());
    std::vector<std::string> refused;
    for (const Refusal& refusal : order.refusals) {
      refused.push_back(refusal.name);
      EXPECT_EQ(refusal.code, ErrorCode::kMismatch);
      EXPECT_THAT(refusal.message, HasSubstr("in group 'g' of 3 on ranks 0, 2; in group 'g' of 2 on rank 1"));
    }
    EXPECT_THAT(refused, ElementsAre("x", "y", "z", "y", "z"));
  }
  announce_everywhere(coordinator, 3, "x", of_two);
  announce_everywhere(coordinator, 3, "y", of_two);
  EXPECT_THAT(names(coordinator.take_order()), ElementsAre(ElementsAre("x", "y")));
}

TEST_F(CoordinatorTest, a_mismatch_shows_both_sides_with_their_ranks) {
  struct Case {
    Signature one;
    Signature other;
    std::string message;
  };
  Signature average = floats({3, 4});
  average.operation = ReduceOperation::kAverage;
  Signature scaled = floats({3, 4});
  scaled.prescale = 0.5;
  Signature doubles = floats({3, 4});
  doubles.type = DataType::kFloat64;
  Signature gather = floats({3, 4});
  gather.kind = OperationKind::kAllgather;
  Signature wide_gather = gather;
  wide_gather.shape = {9, 5};
  Signature broadcast = floats({3, 4});
  broadcast.kind = OperationKind::kBroadcast;
  Signature broadcast_from_1 = broadcast;
  broadcast_from_1.root = 1;
  Signature kept_by_1 = floats({3, 4});
  kept_by_1.root = 1;
  Signature barrier;
  Signature withdrawn;
  withdrawn.root = -1;
  const std::vector<Case> cases = {
      {floats({3, 4}), floats({4, 3}),
       "allreduce of float32 [3, 4] on ranks 0, 2; allreduce of float32 [4, 3] on rank 1"},
      {floats({3, 4}), doubles, "allreduce of float32 [3, 4] on ranks 0, 2; allreduce of float64 [3, 4] on rank 1"},
      {floats({3, 4}), average, "sum on ranks 0, 2; average on rank 1"},
      {floats({3, 4}), scaled, "prescale 1, postscale 1 on ranks 0, 2; prescale 0.5, postscale 1 on rank 1"},
      {floats({3, 4}), gather, "allreduce of float32 [3, 4] on ranks 0, 2; allgather of float32 [3, 4] on rank 1"},
      {gather, wide_gather, "allgather of float32 [3, 4] on ranks 0, 2; allgather of float32 [9, 5] on rank 1"},
      {broadcast, broadcast_from_1, "root 0 on ranks 0, 2; root 1 on rank 1"},
      {floats({3, 4}), kept_by_1, "root 0 on ranks 0, 2; root 1 on rank 1"},
      {gather, withdrawn, "allgather of float32 [3, 4] on ranks 0, 2; a call that raised an error there on rank 1"},
      {barrier, withdrawn, "barrier on ranks 0, 2; a call that raised an error there on rank 1"},
  };
  for (const Case& one : cases) {
    Coordinator coordinator = make(3);
    coordinator.announce(0, {"t", one.one}, now_);
    coordinator.announce(1, {"t", one.other}, now_);
    coordinator.announce(2, {"t", one.one}, now_);
    const Order order = coordinator.take_order();
    ASSERT_EQ(order.refusals.size(), 1U) << one.message;
    EXPECT_EQ(order.refusals[0].code, ErrorCode::kMismatch);
    EXPECT_THAT(order.refusals[0].message, HasSubstr(one.message));
    EXPECT_THAT(order.refusals[0].message, HasSubstr("'t'"));
  }
}

TEST_F(CoordinatorTest, an_allgather_tells_each_ranks_rows) {
  Coordinator coordinator = make(3);
  for (int rank = 0; rank < 3; ++rank) {
    Signature signature = floats({rank * 2, 5});
    signature.kind = OperationKind::kAllgather;
    coordinator.announce(rank, {"g", signature}, now_);
  }
  EXPECT_THAT(coordinator.take_order().buckets.at(0).at(0).sizes, ElementsAre(0, 2, 4));
  Signature alike = floats({6, 5});
  alike.kind = OperationKind::kAllgather;
  announce_everywhere(coordinator, 3, "alike", alike);
  EXPECT_THAT(coordinator.take_order().buckets.at(0).at(0).sizes, ElementsAre());
}

TEST_F(CoordinatorTest, an_alltoall_is_ordered_without_the_counts_of_rows) {
  Coordinator coordinator = make(3);
  Signature signature = floats({4});
  signature.kind = OperationKind::kAllToAll;
  const auto knowledge = [&](const std::vector<RowCounts>& counts) {
    for (int rank = 0; rank < 3; ++rank) {
      coordinator.announce(rank, {"x", signature, false, counts[static_cast<std::size_t>(rank)]}, now_);
    }
    return coordinator.take_order().buckets.at(0).at(0).rows;
  };
  EXPECT_EQ(knowledge({{5, 1, 0}, {~std::uint64_t{1}, 1, 0}, {~std::uint64_t{2}, 0, 1}}), RowKnowledge::kKnown);
  EXPECT_EQ(knowledge({{5, 1, 0}, {5, 1, 0}, {5, 1, 0}}), RowKnowledge::kDisputed);
  EXPECT_EQ(knowledge({{0, 1, 0}, {0, 0, 0}, {0, 0, 1}}), RowKnowledge::kDisputed);
  EXPECT_EQ(knowledge({{0, 0, 1}, {0, 0, 0}, {0, 0, 1}}), RowKnowledge::kExchanged);
}

TEST_F(CoordinatorTest, neither_announcement_nor_order_of_an_alltoall_grows_with_the_ranks) {
  constexpr int kSize = 1000;
  Coordinator coordinator = make(kSize);
  Signature signature = floats({0});
  signature.kind = OperationKind::kAllToAll;
  signature.splits.assign(kSize, 1);
  signature.shape = {kSize};
  signature.expected_splits = signature.splits;
  for (int rank = 0; rank < kSize; ++rank) {
    Announced announced{"x", floats({kSize}), false, row_counts(signature, rank, kSize)};
    announced.signature.kind = OperationKind::kAllToAll;
    EXPECT_LT(AnnouncementEncoder().encode({{announced}, false}).size(), 300U);
    coordinator.announce(rank, std::move(announced), now_);
  }
  EXPECT_LT(OrderEncoder().encode(coordinator.take_order()).size(), 200U);
}

TEST_F(CoordinatorTest, a_rank_that_expects_other_rows_has_the_operation_refused) {
  Coordinator coordinator = make(2);
  coordinator.dispute(1, {"x", 0, true, "rank 0 sends 3 elements to rank 1, which expects 4"});
  const Order order = coordinator.take_order();
  ASSERT_EQ(order.refusals.size(), 1U);
  EXPECT_EQ(order.refusals[0].code, ErrorCode::kMismatch);
  ASSERT_TRUE(order.refusals[0].disagreement);
  EXPECT_THAT(order.refusals[0].disagreement->ranks, ElementsAre(0, 1));
  EXPECT_THAT(order.refusals[0].disagreement->advice, HasSubstr("same order"));
  EXPECT_THROW(coordinator.dispute(1, {"x", 2, true, "text"}), Error);
}

TEST_F(CoordinatorTest, a_group_whose_sizes_differ_is_refused_once_when_a_rank_departs) {
  Coordinator coordinator = make(3);
  Signature member = floats({1});
  member.group = "g";
  for (const std::uint32_t rank : {0U, 1U}) {
    member.group_size = 2 + rank;
    for (std::uint32_t i = 0; i < member.group_size; ++i) {
      coordinator.announce(static_cast<int>(rank), {fmt::format("g{}", i), member}, now_);
    }
  }
  coordinator.depart(2);
  std::vector<std::string> refused;
  for (const Refusal& refusal : coordinator.take_order().refusals) refused.push_back(refusal.name);
  EXPECT_THAT(refused, testing::UnorderedElementsAre("g0", "g1", "g2"));
}

TEST_F(CoordinatorTest, what_needs_a_departed_rank_is_refused_now_and_later) {
  Coordinator coordinator = make(3);
  coordinator.announce(0, {"before", floats({1})}, now_);
  coordinator.announce(2, {"half", floats({1})}, now_);
  coordinator.depart(2);
  Order order = coordinator.take_order();
  ASSERT_EQ(order.refusals.size(), 1U);
  EXPECT_EQ(order.refusals[0].name, "before");
  EXPECT_EQ(order.refusals[0].code, ErrorCode::kPeerLeft);
  EXPECT_THAT(order.refusals[0].message, HasSubstr("rank 2 has shut down"));
  // What the rank announced before it left can still complete.
  coordinator.announce(0, {"half", floats({1})}, now_);
  coordinator.announce(1, {"half", floats({1})}, now_);
  EXPECT_THAT(names(coordinator.take_order()), ElementsAre(ElementsAre("half")));
  coordinator.announce(1, {"later", floats({1})}, now_);
  EXPECT_EQ(coordinator.take_order().refusals.size(), 1U);
}

TEST_F(CoordinatorTest, a_stall_names_who_is_ready_and_who_is_missing) {
  Coordinator coordinator = make(3);
  coordinator.announce(1, {"a", floats({1})}, now_);
  coordinator.announce(2, {"b", floats({1})}, now_ + milliseconds(500));
  EXPECT_TRUE(coordinator.stalls(now_ + milliseconds(900), milliseconds(1000)).empty());
  const auto stalls = coordinator.stalls(now_ + milliseconds(1000), milliseconds(1000));
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].name, "a");
  EXPECT_THAT(stalls[0].ready_ranks, ElementsAre(1));
  EXPECT_THAT(stalls[0].missing_ranks, ElementsAre(0, 2));
  EXPECT_NE(coordinator.arrival_of(1, "a"), 0U);
  EXPECT_EQ(coordinator.arrival_of(1, "a"), stalls[0].arrival);
  EXPECT_NE(coordinator.arrival_of(2, "b"), stalls[0].arrival);
  EXPECT_EQ(coordinator.arrival_of(0, "a"), 0U) << "it has not announced it";
  EXPECT_EQ(coordinator.last_announced(2, now_ + milliseconds(2500)), "allreduce 'b' 2 s ago");
  EXPECT_EQ(coordinator.last_announced(0, now_), "nothing yet");
}

TEST_F(CoordinatorTest, the_work_per_message_does_not_grow_with_what_waits) {
  // With every message the service asks how long the oldest has waited; a rank may be 10,000 operations ahead.
  Coordinator coordinator = make(2);
  constexpr int kCount = 10'000;
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < kCount; ++i) {
      coordinator.announce(rank, {fmt::format("a{}", i), floats({1})}, now_ + milliseconds(i));
      coordinator.take_order();
      const auto oldest = coordinator.oldest_wait();
      if (rank == 0) {
        EXPECT_EQ(oldest, now_);
      } else if (i + 1 < kCount) {
        EXPECT_EQ(oldest, now_ + milliseconds(i + 1)) << "the first of those that still wait";
      } else {
        EXPECT_FALSE(oldest.has_value());
      }
    }
  }
  EXPECT_EQ(coordinator.visits(), 0U);
  coordinator.announce(0, {"a", floats({1})}, now_);
  coordinator.stalls(now_, milliseconds(0));
  EXPECT_EQ(coordinator.visits(), 1U) << "or the count says nothing";
}

TEST_F(CoordinatorTest, a_rank_that_announces_twice_breaks_the_protocol) {
  Coordinator coordinator = make(2);
  coordinator.announce(1, {"a", floats({1})}, now_);
  EXPECT_THROW(coordinator.announce(1, {"a", floats({1})}, now_), Error);
}

TEST_F(CoordinatorTest, a_rank_that_has_joined_counts_as_having_announced) {
  Coordinator coordinator = make(3);
  coordinator.announce(0, {"a", floats({4})}, now_);
  coordinator.announce(2, {"a", floats({4})}, now_);
  coordinator.join(1, {});
  const Order order = coordinator.take_order();
  ASSERT_EQ(order.buckets.size(), 1U);
  EXPECT_EQ(order.buckets[0][0].signature, floats({4}));
  EXPECT_EQ(order.buckets[0][0].divisor, 0);
  EXPECT_TRUE(order.announce_steps);
  coordinator.announce(2, {"b", floats({4})}, now_);
  EXPECT_TRUE(coordinator.take_order().empty());
  coordinator.join(0, {.divide_by_contributors = true});
  EXPECT_EQ(coordinator.take_order().buckets[0][0].divisor, 1);
  coordinator.join(2, {});
  EXPECT_EQ(coordinator.take_order().last_rank_to_join, 2);
  coordinator.announce(0, {"c", floats({4})}, now_);
  EXPECT_TRUE(coordinator.take_order().empty()) << "all are back";
}

TEST_F(CoordinatorTest, the_others_are_checked_against_each_other_when_rank_zero_has_joined) {
  Coordinator coordinator = make(3);
  coordinator.join(0, {});
  coordinator.announce(1, {"a", floats({4})}, now_);
  coordinator.announce(2, {"a", floats({5})}, now_);
  const Order order = coordinator.take_order();
  ASSERT_EQ(order.refusals.size(), 1U);
  EXPECT_THAT(order.refusals[0].message, HasSubstr("on rank 1"));
}

TEST_F(CoordinatorTest, steps_of_plans_are_told_once_and_only_while_somebody_has_joined) {
  Coordinator coordinator = make(3);
  coordinator.begin_step(1, {16, 4});
  EXPECT_TRUE(coordinator.take_order().empty());
  coordinator.join(0, {});
  coordinator.take_order();
  coordinator.begin_step(1, {16, 4});
  coordinator.begin_step(2, {16, 4});
  EXPECT_THAT(coordinator.take_order().steps, ElementsAre(PlanStep{16, 4}));
  coordinator.begin_step(2, {16, 5});
  coordinator.begin_step(2, {17, 0});
  EXPECT_THAT(coordinator.take_order().steps, ElementsAre(PlanStep{16, 5}, PlanStep{17, 0}));
}

TEST_F(CoordinatorTest, messages_name_ranks_as_the_job_does) {
  Coordinator coordinator({2, 0, 1, {5, 7}});
  coordinator.announce(0, {"a", floats({4})}, now_);
  coordinator.announce(1, {"a", floats({5})}, now_);
  EXPECT_THAT(coordinator.take_order().refusals[0].message, HasSubstr("on rank 7"));
}

}  // namespace
}  // namespace gyre::engine::internal
