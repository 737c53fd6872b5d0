// Ranks that lay a plan out differently would add up other tensors than they think: they must find out before.
#include "gyre/engine/internal/plan/plan_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::engine::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Bytes concatenated(const Bytes& a, const Bytes& b) {
  Bytes both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

TEST(PlanAgreementTest, proposals_come_back_by_rank) {
  const Bytes both = concatenated(encode_proposal({7, {2, 0, 1}, 5}), encode_proposal({8, {}}));
  const auto proposals = decode_proposals(both, 2);
  EXPECT_EQ(proposals[0].description_hash, 7U);
  EXPECT_THAT(proposals[0].ready_order, ElementsAre(2, 0, 1));
  EXPECT_EQ(proposals[0].number, 5U);
  EXPECT_EQ(proposals[1].description_hash, 8U);
  EXPECT_TRUE(proposals[1].ready_order.empty());
}

TEST(PlanAgreementTest, the_first_of_the_fullest_orders_counts) {
  EXPECT_THAT(fullest_order({{7, {}}, {7, {2, 1}}, {7, {1, 0}}}), ElementsAre(2, 1));
  EXPECT_THAT(fullest_order({{7, {}}, {7, {}}}), ElementsAre());
}

TEST(PlanAgreementTest, damaged_proposals_are_refused) {
  Bytes bytes = encode_proposal({7, {2, 0, 1}});
  EXPECT_THROW(decode_proposals(bytes, 2), Error);
  bytes.resize(bytes.size() - 1);
  EXPECT_THROW(decode_proposals(bytes, 1), Error);
}

TEST(PlanAgreementTest, one_line_shows_both_sides_of_a_difference) {
  const auto failure_of = [](const std::vector<std::string>& low, const std::vector<std::string>& high) {
    try {
      check_descriptions("p", decode_descriptions(concatenated(encode_description(low), encode_description(high)), 2));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(failure_of({"a", "b"}, {"a", "b"}), "none");
  EXPECT_THAT(failure_of({"a", "b"}, {"a", "c"}), HasSubstr("gradient exchange 'p': b on rank 0; c on rank 1"));
  EXPECT_THAT(failure_of({"a", "b"}, {"a"}), HasSubstr("b on rank 0; nothing more on rank 1"));
  EXPECT_NE(hash_description({"a", "b"}), hash_description({"a", "c"}));
}

}  // namespace
}  // namespace gyre::engine::internal
