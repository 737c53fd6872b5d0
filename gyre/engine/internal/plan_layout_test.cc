// A plan's layout decides which gradients travel together; it must be the same on all ranks and waste nothing.
#include "gyre/engine/internal/plan_layout.h"

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

TEST(PlanLayoutTest, tensors_of_one_type_fill_a_bucket_in_their_order) {
  const PlanLayout layout = lay_out(example(), 256);
  ASSERT_EQ(layout.buckets.size(), 3U);
  EXPECT_THAT(layout.buckets[0].tensors, ElementsAre(0, 2));
  EXPECT_THAT(layout.buckets[1].tensors, ElementsAre(1, 4));
  EXPECT_THAT(layout.buckets[2].tensors, ElementsAre(3));
  EXPECT_THAT(layout.tensor_offsets_bytes, ElementsAre(0, 192, 64, 256, 256));
  EXPECT_THAT(layout.tensor_sizes_bytes, ElementsAre(64, 6, 68, 4000, 0));
  EXPECT_EQ(layout.buckets[1].offset_bytes, 192U);
  EXPECT_EQ(layout.buckets[1].size_bytes, 64U);
  EXPECT_EQ(layout.arena_bytes, 192U + 64U + 4032U);
}

TEST(PlanLayoutTest, every_place_is_aligned_and_no_two_overlap) {
  const auto tensors = example();
  const PlanLayout layout = lay_out(tensors, 1 << 20);
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
  EXPECT_EQ(lay_out(example(), 0).buckets.size(), 5U);
}

}  // namespace
}  // namespace gyre::engine::internal
