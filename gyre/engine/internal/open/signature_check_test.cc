// Peers hold the job's key and may still be broken: what they say about sizes must not be used as an index unchecked.
#include "gyre/engine/internal/open/signature_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "gyre/engine/internal/open/coordinator.h"

namespace gyre::engine::internal {
namespace {

using testing::HasSubstr;

constexpr int kSize = 2;
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

std::string refusal_of(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kProtocol);
    return error.what();
  }
  return "none";
}

std::string announced(const Signature& signature) {
  return refusal_of([&] { check_announced({"x", signature, false}, {1}, kSize); });
}

TEST(SignatureCheckTest, refuses_announcements_that_no_operation_can_have) {
  using enum OperationKind;
  EXPECT_EQ(announced({.kind = kAllreduce, .shape = {2, 3}}), "none");
  EXPECT_EQ(announced({.kind = kBarrier, .root = -1}), "none");  // Withdrawn.
  EXPECT_EQ(announced({.kind = kAllToAll, .shape = {3}}), "none");
  EXPECT_THAT(announced({.kind = kAllreduce, .shape = {-1}}), HasSubstr("negative dimension"));
  EXPECT_THAT(announced({.kind = kAllgather, .shape = {kHuge, kHuge}}), HasSubstr("too large"));
  EXPECT_THAT(announced({.kind = kBroadcast, .root = 2}), HasSubstr("root 2 is not a rank"));
  EXPECT_THAT(announced({.kind = kAllreduce, .root = -5}), HasSubstr("root -5 is not a rank"));
  EXPECT_THAT(announced({.kind = kReduceScatter}), HasSubstr("no first dimension"));
  EXPECT_THAT(announced({.kind = kAllToAll}), HasSubstr("no first dimension"));
  EXPECT_THAT(announced({.kind = kAllreduce, .shape = {1}, .group = "g"}), HasSubstr("no members"));
  const auto with_rows = [](OperationKind kind, const RowCounts& rows) {
    return refusal_of([&] { check_announced({"x", {.kind = kind, .shape = {2}}, false, rows}, {1}, kSize); });
  };
  EXPECT_EQ(with_rows(kAllToAll, {7, 1, 0}), "none");
  EXPECT_EQ(with_rows(kAllToAll, {7, 0, 1}), "none");
  EXPECT_THAT(with_rows(kAllToAll, {7, 1, 1}), HasSubstr("those of more ranks"));
  EXPECT_THAT(with_rows(kAllToAll, {7, 2, 0}), HasSubstr("those of more ranks"));
  EXPECT_THAT(with_rows(kAllToAll, {7, 0, ~0U}), HasSubstr("those of more ranks"));
  EXPECT_THAT(with_rows(kAllreduce, {7, 0, 0}), HasSubstr("those of more ranks"));
}

TEST(SignatureCheckTest, the_coordinator_does_not_take_them_into_its_order) {
  Coordinator coordinator({kSize, 1 << 20});
  const Signature signature{.kind = OperationKind::kAllToAll, .shape = {-3}};
  EXPECT_THAT(refusal_of([&] { coordinator.announce(0, {"x", signature, false}, SteadyClock::now()); }),
              HasSubstr("rank 0 announced alltoall 'x', which cannot be"));
}

TEST(SignatureCheckTest, refuses_orders_that_do_not_answer_the_request) {
  const Signature gather{.kind = OperationKind::kAllgather, .type = DataType::kFloat32, .shape = {3, 5}};
  const Signature exchange{.kind = OperationKind::kAllToAll, .shape = {3}, .splits = {1, 2}};
  const auto sizes = [](const Signature& signature, const std::vector<std::int64_t>& given, bool contributes = true) {
    return refusal_of([&] { check_sizes({"x", given}, signature, 1, kSize, contributes); });
  };
  EXPECT_EQ(sizes(gather, {7, 3}), "none");
  EXPECT_EQ(sizes(gather, {7, 0}, false), "none");
  EXPECT_EQ(sizes(gather, {}), "none");
  const auto rows = [&](RowKnowledge known, const Signature& signature, bool contributes) {
    const OrderedOperation operation{.name = "x", .sizes = {}, .rows = known};
    return refusal_of([&] { check_sizes(operation, signature, 1, kSize, contributes); });
  };
  EXPECT_EQ(rows(RowKnowledge::kKnown, exchange, true), "none");
  EXPECT_EQ(rows(RowKnowledge::kExchanged, exchange, false), "none");
  EXPECT_THAT(rows(RowKnowledge::kKnown, exchange, false), HasSubstr("as if every rank expected"));
  Signature another = exchange;
  another.expected_splits = {1, 3};
  EXPECT_EQ(rows(RowKnowledge::kDisputed, another, true), "none");
  EXPECT_THAT(rows(RowKnowledge::kKnown, another, true), HasSubstr("as if every rank expected"));
  for (const auto& given :
       std::vector<std::vector<std::int64_t>>{{3}, {7, 3, 0}, {7, 4}, {-1, 3}, {kHuge, 3}, {kHuge - 3, 3}}) {
    EXPECT_THAT(sizes(gather, given), HasSubstr("do not fit allgather 'x'")) << testing::PrintToString(given);
  }
  EXPECT_THAT(sizes(exchange, {1, 2}), HasSubstr("do not fit alltoall 'x'"));
  EXPECT_THAT(sizes({.kind = OperationKind::kBarrier}, {1}), HasSubstr("do not fit barrier"));

  const auto order = [](const std::function<void(Order&)>& fill) {
    Order given;
    given.buckets = {{{"x", {}}}};
    fill(given);
    return refusal_of([&] { check_order(given, kSize); });
  };
  EXPECT_EQ(order([](Order& given) { given.last_rank_to_join = 1; }), "none");
  EXPECT_THAT(order([](Order& given) { given.last_rank_to_join = 2; }), HasSubstr("last rank to join is 2 of 2"));
  EXPECT_THAT(order([](Order& given) { given.buckets.emplace_back(); }), HasSubstr("a bucket is empty"));
  EXPECT_THAT(order([](Order& given) { given.buckets[0][0].divisor = -1; }), HasSubstr("average over -1"));
  EXPECT_THAT(order([](Order& given) { given.buckets[0][0].signature = Signature{.shape = {-2}}; }),
              HasSubstr("negative"));
  EXPECT_THAT(refusal_of([&] { check_fusable(gather, gather, "y"); }), HasSubstr("ordered 'y' in one bucket"));
}

}  // namespace
}  // namespace gyre::engine::internal
