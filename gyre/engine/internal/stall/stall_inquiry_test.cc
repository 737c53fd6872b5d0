// A report must not wait for a rank that cannot answer, nor repeat what was answered to an earlier question.
#include "gyre/engine/internal/stall/stall_inquiry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyre::engine::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(StallInquiryTest, is_over_when_all_who_were_asked_have_answered) {
  const auto now = SteadyClock::now();
  StallInquiry inquiry(3);
  const std::uint32_t question = inquiry.ask({0, 2}, now);
  EXPECT_TRUE(inquiry.is_open());
  inquiry.answer(0, {question, "train.py:3 in main()", {}});
  EXPECT_FALSE(inquiry.is_over(now));
  inquiry.answer(2, {question, "", {}});
  EXPECT_TRUE(inquiry.is_over(now));
  EXPECT_EQ(inquiry.place_of(0), "now at train.py:3 in main()");
  EXPECT_EQ(inquiry.place_of(2), "");
  EXPECT_EQ(inquiry.first_place_of({2, 0}), "at train.py:3 in main()");
  inquiry.close();
  EXPECT_FALSE(inquiry.is_open());
}

TEST(StallInquiryTest, does_not_wait_long_for_a_rank_that_cannot_answer) {
  const auto now = SteadyClock::now();
  StallInquiry inquiry(2);
  inquiry.answer(1, {inquiry.ask({0, 1}, now), "here", {}});
  EXPECT_FALSE(inquiry.is_over(now + StallInquiry::kPatience / 2));
  EXPECT_TRUE(inquiry.is_over(now + StallInquiry::kPatience));
  EXPECT_THAT(inquiry.place_of(0), HasSubstr("not answering"));
}

TEST(StallInquiryTest, drops_answers_to_an_earlier_question) {
  const auto now = SteadyClock::now();
  StallInquiry inquiry(1);
  const std::uint32_t first = inquiry.ask({0}, now);
  inquiry.close();
  inquiry.answer(0, {first, "too late", {}});
  static_cast<void>(inquiry.ask({0}, now));
  inquiry.answer(0, {first, "too late", {}});
  EXPECT_FALSE(inquiry.is_over(now));
  EXPECT_EQ(inquiry.first_place_of({0}), "");
}

TEST(StallInquiryTest, tells_who_waits_for_a_step) {
  StallInquiry inquiry(3);
  const std::uint32_t question = inquiry.ask({0, 1, 2}, SteadyClock::now());
  inquiry.answer(0, {question, "", {{7, 1}, {8, 4}}});
  inquiry.answer(1, {question, "", {{8, 3}}});
  inquiry.answer(2, {question, "", {{8, 4}}});
  EXPECT_THAT(inquiry.waiting_for({8, 4}), ElementsAre(0, 2));
  EXPECT_THAT(inquiry.waiting_for({9, 0}), IsEmpty());
}

}  // namespace
}  // namespace gyre::engine::internal
