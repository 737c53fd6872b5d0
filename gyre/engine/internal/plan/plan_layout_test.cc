// A plan's layout decides which gradients travel together; it must be the same on all ranks and waste nothing.
#include "gyre/engine/internal/plan/plan_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyre::engine::internal {
namespace {

using testing::ElementsAre;

std::vector<PlanTensor> example() {
  return {{"a", DataType::kFloat32, {16}},
          {"b", DataType::kBfloat16, {3}},
          {"c", DataType::kFloat32, {17}},
          {"d", DataType::kFloat32, {1000}},
          {"e", DataType::kBfloat16, {0}}};
}

const std::vector<std::size_t> kAsListed = {0, 1, 2, 3, 4};

TEST(PlanLayoutTest, tensors_of_one_type_fill_a_bucket_in_their_order) {
  const PlanLayout layout = lay_out(example(), kAsListed, 256);
  ASSERT_EQ(layout.buckets.size(), 3U);
  EXPECT_THAT(layout.buckets[0].tensors, ElementsAre(0, 2));
  EXPECT_THAT(layout.buckets[1].tensors, ElementsAre(3));  // Complete before the bucket of "b", which "e" closes.
  EXPECT_THAT(layout.buckets[2].tensors, ElementsAre(1, 4));
  EXPECT_THAT(layout.tensor_offsets_bytes, ElementsAre(0, 4224, 64, 192, 4288));
  EXPECT_THAT(layout.tensor_sizes_bytes, ElementsAre(64, 6, 68, 4000, 0));
  EXPECT_EQ(layout.buckets[1].offset_bytes, 192U);
  EXPECT_EQ(layout.buckets[2].size_bytes, 64U);
  EXPECT_EQ(layout.arena_bytes, 192U + 64U + 4032U);
}

TEST(PlanLayoutTest, every_place_is_aligned_and_no_two_overlap) {
  const auto tensors = example();
  const PlanLayout layout = lay_out(tensors, {3, 1, 4, 0, 2}, 1 << 20);
  std::vector<bool> taken(layout.arena_bytes, false);
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    EXPECT_EQ(layout.tensor_offsets_bytes[index] % 64, 0U);
    for (std::size_t i = 0; i < layout.tensor_sizes_bytes[index]; ++i) {
      EXPECT_FALSE(taken[layout.tensor_offsets_bytes[index] + i]);
      taken[layout.tensor_offsets_bytes[index] + i] = true;
    }
  }
}

TEST(PlanLayoutTest, without_fusion_every_tensor_has_its_own_bucket) {
  EXPECT_EQ(lay_out(example(), kAsListed, 0).buckets.size(), 5U);
}

TEST(PlanLayoutTest, a_group_travels_together_and_alone) {
  auto tensors = example();
  tensors[0].group = tensors[3].group = 0;
  tensors[1].group = 0;  // Of another type: a bucket of its own.
  tensors[4].group = 7;
  const PlanLayout layout = lay_out(tensors, kAsListed, 256);
  ASSERT_EQ(layout.buckets.size(), 4U);
  EXPECT_THAT(layout.buckets[0].tensors, ElementsAre(1));
  EXPECT_THAT(layout.buckets[1].tensors, ElementsAre(2));
  EXPECT_THAT(layout.buckets[2].tensors, ElementsAre(0, 3));
  EXPECT_THAT(layout.buckets[3].tensors, ElementsAre(4));
  EXPECT_EQ(lay_out(tensors, kAsListed, 0).buckets.size(), 4U);
}

TEST(PlanLayoutTest, groups_are_part_of_what_ranks_must_agree_on) {
  auto tensors = example();
  const auto lines = describe_plan(tensors, {}, 256);
  tensors[2].group = 1;
  EXPECT_NE(describe_plan(tensors, {}, 256), lines);
}

TEST(PlanLayoutTest, buckets_fill_in_the_order_in_which_backward_produces_tensors) {
  const PlanLayout layout = lay_out(example(), {4, 3, 2, 1, 0}, 256);
  ASSERT_EQ(layout.buckets.size(), 3U);
  EXPECT_THAT(layout.buckets[0].tensors, ElementsAre(3));
  EXPECT_THAT(layout.buckets[1].tensors, ElementsAre(4, 1));
  EXPECT_THAT(layout.buckets[2].tensors, ElementsAre(2, 0));
  EXPECT_EQ(layout.arena_bytes, lay_out(example(), kAsListed, 256).arena_bytes);
}

TEST(PlanLayoutTest, what_backward_did_not_produce_comes_last) {
  EXPECT_THAT(complete_order({3, 1}, 5), ElementsAre(3, 1, 0, 2, 4));
  EXPECT_THAT(complete_order({}, 2), ElementsAre(0, 1));
  EXPECT_ANY_THROW(static_cast<void>(complete_order({1, 1}, 3)));
  EXPECT_ANY_THROW(static_cast<void>(complete_order({3}, 3)));
}

}  // namespace
}  // namespace gyre::engine::internal
