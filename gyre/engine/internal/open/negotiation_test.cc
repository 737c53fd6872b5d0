// What ranks and coordinator say to each other must survive the trip, shrink when repeated, and be refused when
// damaged.
#include "gyre/engine/internal/open/negotiation.h"

#include <gtest/gtest.h>

#include "gyre/base/random.h"

namespace gyre::engine::internal {
namespace {

Announced example(const std::string& name, bool transient = false) {
  Signature signature{.kind = OperationKind::kAllToAll,
                      .type = DataType::kBfloat16,
                      .shape = {7, 3},
                      .operation = ReduceOperation::kMax,
                      .prescale = 0.25,
                      .postscale = 3,
                      .root = 2,
                      .group = "g",
                      .group_size = 2};
  return {name, signature, transient, {.difference = ~std::uint64_t{7}, .stated = 1}};
}

TEST(NegotiationTest, announcements_survive_the_trip) {
  AnnouncementEncoder encoder;
  AnnouncementDecoder decoder;
  for (int round = 0; round < 3; ++round) {
    const AnnouncementContent sent{{example("a"), example("b", true)}, round == 2};
    const AnnouncementContent received = decoder.decode(encoder.encode(sent));
    ASSERT_EQ(received.operations.size(), 2U);
    EXPECT_EQ(received.operations[0].name, "a");
    EXPECT_EQ(received.leaving, round == 2);
    for (const Announced& operation : received.operations) {
      const Announced& original = sent.operations[operation.name == "a" ? 0 : 1];
      EXPECT_EQ(operation.signature, original.signature);
      EXPECT_EQ(operation.rows, original.rows);
      EXPECT_EQ(operation.transient, original.transient);
    }
  }
}

TEST(NegotiationTest, what_was_said_once_travels_as_a_number) {
  AnnouncementEncoder encoder;
  const std::string name(200, 'x');
  const std::size_t first_bytes = encoder.encode({{example(name)}, false}).size();
  const std::size_t second_bytes = encoder.encode({{example(name)}, false}).size();
  EXPECT_GT(first_bytes, 300U);
  EXPECT_LT(second_bytes, 64U);
}

TEST(NegotiationTest, a_new_shape_under_an_old_name_is_said_in_full) {
  AnnouncementEncoder encoder;
  AnnouncementDecoder decoder;
  static_cast<void>(decoder.decode(encoder.encode({{example("a")}, false})));
  Announced changed = example("a");
  changed.rows.difference = 1;
  EXPECT_EQ(decoder.decode(encoder.encode({{changed}, false})).operations.at(0).rows, changed.rows);
  changed.signature.shape = {100};
  EXPECT_EQ(decoder.decode(encoder.encode({{changed}, false})).operations.at(0).signature, changed.signature);
  EXPECT_EQ(decoder.decode(encoder.encode({{changed}, false})).operations.at(0).signature, changed.signature);
}

TEST(NegotiationTest, orders_survive_the_trip) {
  OrderEncoder encoder;
  OrderDecoder decoder;
  for (int round = 0; round < 2; ++round) {
    Order order;
    order.buckets = {{{"a", {}, false}, {"b", {}, false}}, {{"c", {1, 2, 3}, true}}};
    order.refusals = {{"d", ErrorCode::kMismatch, "both sides"}};
    const Order received = decoder.decode(encoder.encode(order));
    ASSERT_EQ(received.buckets.size(), 2U);
    EXPECT_EQ(received.buckets[0][1].name, "b");
    EXPECT_EQ(received.buckets[1][0].sizes, (std::vector<std::int64_t>{1, 2, 3}));
    ASSERT_EQ(received.refusals.size(), 1U);
    EXPECT_EQ(received.refusals[0].code, ErrorCode::kMismatch);
    EXPECT_EQ(received.refusals[0].message, "both sides");
  }
}

TEST(NegotiationTest, joins_and_steps_survive_the_trip) {
  AnnouncementEncoder announcements;
  AnnouncementDecoder announcement_decoder;
  AnnouncementContent sent;
  sent.join = {true, false};
  sent.steps = {{16, 3}, {17, 1ULL << 40}};
  sent.disputes = {{"x", 2, true, "rank 2 sends 3"}};
  const AnnouncementContent received = announcement_decoder.decode(announcements.encode(sent));
  EXPECT_EQ(received.join, sent.join);
  EXPECT_EQ(received.steps, sent.steps);
  EXPECT_EQ(received.disputes, sent.disputes);
  EXPECT_FALSE(announcement_decoder.decode(announcements.encode({})).join);

  OrderEncoder orders;
  OrderDecoder order_decoder;
  Order order;
  order.buckets = {{{"a", {}, false, example("a").signature, 3, RowKnowledge::kDisputed}}};
  order.announce_steps = true;
  order.steps = {{16, 4}};
  order.last_rank_to_join = 2;
  const Order arrived = order_decoder.decode(orders.encode(order));
  EXPECT_EQ(arrived.buckets[0][0].signature, example("a").signature);
  EXPECT_EQ(arrived.buckets[0][0].divisor, 3);
  EXPECT_EQ(arrived.buckets[0][0].rows, RowKnowledge::kDisputed);
  EXPECT_TRUE(arrived.announce_steps);
  EXPECT_EQ(arrived.steps, order.steps);
  EXPECT_EQ(arrived.last_rank_to_join, 2);
  EXPECT_TRUE(order_decoder.decode(orders.encode({})).empty());
}

TEST(NegotiationTest, what_is_passed_on_for_other_ranks_survives_the_trip) {
  AnnouncementEncoder encoder;
  AnnouncementDecoder decoder;
  for (int round = 0; round < 2; ++round) {
    AnnouncementContent sent({example("new", true), example("a"), example("b")}, false);
    sent.operations[2].ranks = {1, 2, 3, 7, 9, 10};
    sent.operations.push_back(sent.operations[2]);
    sent.operations[3].ranks = {0};
    RankNote note;
    note.leaving = true;
    note.stall_answer = {7, "text", {{16, 3}}, {}};
    sent.relayed = {{5, note}, {6, {}}};
    const AnnouncementContent received = decoder.decode(encoder.encode(sent));
    ASSERT_EQ(received.operations.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(received.operations[i].name, sent.operations[i].name);
      EXPECT_EQ(received.operations[i].ranks, sent.operations[i].ranks);
      EXPECT_EQ(received.operations[i].transient, sent.operations[i].transient);
    }
    ASSERT_EQ(received.relayed.size(), 2U);
    EXPECT_EQ(received.relayed[0].rank, 5);
    EXPECT_TRUE(received.relayed[0].note.leaving);
    EXPECT_EQ(received.relayed[0].note.stall_answer, note.stall_answer);
    EXPECT_TRUE(received.relayed[1].note.empty());
  }
}

TEST(NegotiationTest, what_is_said_about_stalls_survives_the_trip) {
  AnnouncementEncoder announcements;
  AnnouncementDecoder announcement_decoder;
  AnnouncementContent sent;
  sent.stalled_step = {{16, 3}, "optimizer.1", std::chrono::milliseconds(60'500)};
  const Awaited operation{
      .engine = 5, .operation = "metric", .step = {}, .serial = 9, .description = "allreduce 'metric'"};
  const Awaited step{.engine = 5, .operation = {}, .step = PlanStep{16, 3}, .serial = 0, .description = "a step"};
  sent.stall_answer = {7, "train.py:4 in main()", {{16, 3}, {17, 0}}, {}};
  sent.stall_answer->state = {.threads = {{{operation, step}}, {}},
                              .owed = {{5, {16, 3}, 1}, {5, {17, 0}, OwedStep::kAnyThread}},
                              .engines = {{6, true, false, {"a", "b"}}, {7, false, true, {}}},
                              .strangers = {"thread 'saver' at train.py:9 in save()", "thread 7"}};
  const AnnouncementContent received = announcement_decoder.decode(announcements.encode(sent));
  EXPECT_EQ(received.stalled_step, sent.stalled_step);
  EXPECT_EQ(received.stall_answer, sent.stall_answer);
  EXPECT_FALSE(announcement_decoder.decode(announcements.encode({})).stall_answer);
  sent.stall_answer->program.assign(2 * kMostLocationBytes, 'x');
  EXPECT_EQ(announcement_decoder.decode(announcements.encode(sent)).stall_answer->program.size(), kMostLocationBytes);

  OrderEncoder orders;
  OrderDecoder order_decoder;
  Order order;
  order.question = 7;
  order.deadlock = {{1, 2}, "deadlock: rank 0 waits"};
  order.engine = std::uint64_t{1} << 63;
  EXPECT_EQ(order_decoder.decode(orders.encode(order)).question, 7U);
  EXPECT_EQ(order_decoder.decode(orders.encode(order)).engine, order.engine);
  EXPECT_EQ(order_decoder.decode(orders.encode(order)).deadlock, order.deadlock);
}

TEST(NegotiationTest, a_number_never_introduced_is_refused) {
  AnnouncementEncoder encoder;
  static_cast<void>(encoder.encode({{example("a")}, false}));
  const Bytes second = encoder.encode({{example("a")}, false});
  AnnouncementDecoder fresh;
  EXPECT_THROW(fresh.decode(second), Error);
}

TEST(NegotiationTest, damaged_bytes_are_refused_or_decoded_but_never_crash) {
  constexpr std::uint64_t kSeed = 20260101;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  AnnouncementEncoder encoder;
  AnnouncementContent content{{example("a"), example("b")}, true};
  content.stalled_step = {{16, 3}, "p", std::chrono::milliseconds(5)};
  content.stall_answer = {7, "text", {{16, 3}}, {}};
  content.stall_answer->state = {.threads = {{{{.engine = 5, .operation = "a", .step = PlanStep{16, 3}}}}, {}},
                                 .owed = {{5, {16, 3}, 1}},
                                 .engines = {{6, true, false, {"a", "b"}}}};
  content.operations.push_back(example("c"));
  content.operations.back().ranks = {1, 2, 4};
  content.relayed.push_back({3, {.leaving = true}});
  const Bytes whole = encoder.encode(content);
  OrderEncoder order_encoder;
  Order order;
  order.buckets = {{{"a", {4, 5}, false}}};
  order.refusals = {{"d", ErrorCode::kTimeout, "text"}};
  const Bytes whole_order = order_encoder.encode(order);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    Bytes bytes = round % 2 == 0 ? whole : whole_order;
    if (random.below(4) == 0) bytes.resize(random.below(bytes.size()));
    for (std::uint64_t i = random.below(4); i > 0 && !bytes.empty(); --i) {
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next_u32());
    }
    try {
      if (round % 2 == 0) {
        AnnouncementDecoder decoder;
        static_cast<void>(decoder.decode(bytes));
      } else {
        OrderDecoder decoder;
        static_cast<void>(decoder.decode(bytes));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace gyre::engine::internal
