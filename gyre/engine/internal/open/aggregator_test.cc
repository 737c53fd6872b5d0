// The coordinator must decide the same whether ranks announce to it or through a tree, and hear as much of ranks that
// others wait for.
#include "gyre/engine/internal/open/aggregator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

#include "gyre/base/random.h"
#include "gyre/engine/internal/open/coordinator.h"

namespace gyre::engine::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::vector<int>> random_hosts(Random& random, int size) {
  std::vector<std::vector<int>> hosts(1 + random.below(static_cast<std::uint64_t>(size)));
  for (int rank = 0; rank < size; ++rank) hosts[rank == 0 ? 0 : random.below(hosts.size())].push_back(rank);
  std::erase_if(hosts, [](const auto& ranks) { return ranks.empty(); });
  std::ranges::sort(hosts);
  return hosts;
}

/// The tree's ranks, with what is on its way between them as it travels.
class Tree {
 public:
  Tree(const std::vector<std::vector<int>>& hosts, int size, int arity, const CoordinatorOptions& options)
      : coordinator(options) {
    for (int rank = 0; rank < size; ++rank) {
      nodes_.emplace_back();
      nodes_.back().place = negotiation_place(hosts, rank, arity);
      for (const auto& child : nodes_.back().place.children) nodes_.back().decoders[child.rank];
      if (rank == 0 || nodes_.back().place.children.empty()) continue;
      std::vector<int> ranks{rank};
      for (const auto& child : nodes_.back().place.children) {
        ranks.insert(ranks.end(), child.ranks.begin(), child.ranks.end());
      }
      std::ranges::sort(ranks);
      nodes_.back().aggregator.emplace(std::move(ranks));
    }
  }

  /// A rank's open lane says something.
  void say(int rank, const AnnouncementContent& content, SteadyClock::time_point now) {
    Node& node = nodes_[static_cast<std::size_t>(rank)];
    AnnouncementContent received = node.own_decoder.decode(node.own_encoder.encode(content));
    if (rank == 0) return decide({0, {0}}, received, now);
    if (node.aggregator) return node.aggregator->take({rank, {rank}}, std::move(received), now);
    node.up.push_back(node.encoder.encode(received));
  }
  /// One message of `rank` arrives at its parent, if there is one on the way.
  bool deliver(int rank, SteadyClock::time_point now) {
    Node& node = nodes_[static_cast<std::size_t>(rank)];
    if (node.aggregator) {
      if (const auto content = node.aggregator->next_announcement(now))
        node.up.push_back(node.encoder.encode(*content));
    }
    if (node.up.empty()) return false;
    const Bytes bytes = std::move(node.up.front());
    node.up.pop_front();
    Node& parent = nodes_[static_cast<std::size_t>(node.place.parent)];
    const auto& children = parent.place.children;
    const auto child = std::ranges::find(children, rank, &NegotiationPlace::Child::rank);
    AnnouncementContent content = parent.decoders.at(rank).decode(bytes);
    if (parent.aggregator) {
      parent.aggregator->take(*child, std::move(content), now);
    } else {
      ++messages_at_root;
      decide(*child, content, now);
    }
    return true;
  }
  void deliver_all(SteadyClock::time_point now) {
    for (bool any = true; any;) {
      any = false;
      for (int rank = static_cast<int>(nodes_.size()) - 1; rank > 0; --rank) any |= deliver(rank, now);
    }
  }
  void obey(const Order& order) {
    for (Node& node : nodes_) {
      if (node.aggregator) node.aggregator->obey(order);
    }
  }

  Coordinator coordinator;
  int messages_at_root = 0;

 private:
  struct Node {
    NegotiationPlace place;
    std::optional<Aggregator> aggregator;
    AnnouncementEncoder own_encoder;
    AnnouncementDecoder own_decoder;
    AnnouncementEncoder encoder;
    std::map<int, AnnouncementDecoder> decoders;
    std::deque<Bytes> up;
  };

  void decide(const NegotiationPlace::Child& child, const AnnouncementContent& content, SteadyClock::time_point now) {
    check_speaker(child, content);
    for (const Announced& announced : content.operations) {
      coordinator.announce(announced.ranks.empty() ? child.ranks : announced.ranks, announced, now);
    }
    for (const RelayedNote& relayed : content.relayed) note(relayed.rank, relayed.note);
    note(child.rank, content);
  }
  void note(int rank, const RankNote& note) {
    if (note.join) coordinator.join(rank, *note.join);
    for (const PlanStep& step : note.steps) coordinator.begin_step(rank, step);
    if (note.leaving) coordinator.depart(rank);
  }

  std::deque<Node> nodes_;
};

/// What an order says, in a form that can be compared and printed.
std::string text_of(const Order& order) {
  std::string text;
  for (const Bucket& bucket : order.buckets) {
    text += "[";
    for (const OrderedOperation& operation : bucket) {
      text += fmt::format("{} sizes {} divisor {} rows {} follow {}; ", operation.name, fmt::join(operation.sizes, ","),
                          operation.divisor, static_cast<int>(operation.rows), operation.signature.has_value());
    }
    text += "] ";
  }
  // They take effect together, in whichever order they stand.
  std::multiset<std::string> refusals;
  for (const Refusal& refusal : order.refusals) {
    refusals.insert(fmt::format("refused {}: {}; ", refusal.name, refusal.message));
  }
  for (const std::string& refusal : refusals) text += refusal;
  for (const PlanStep& step : order.steps) text += fmt::format("step {}.{}; ", step.plan, step.step);
  return text + fmt::format("steps {} joined {}", order.announce_steps, order.last_rank_to_join.value_or(-1));
}

/// Random programs of all ranks: each may do what a rank's program may.
class Programs {
 public:
  Programs(int size, Random& random) : random_(random), ranks_(static_cast<std::size_t>(size)) {}

  /// What a random rank says next; nothing if it may say nothing.
  std::optional<std::pair<int, AnnouncementContent>> next(bool may_join, bool may_leave) {
    const auto rank = random_.below(ranks_.size());
    State& state = ranks_[rank];
    if (state.joined || state.left) return std::nullopt;
    AnnouncementContent content;
    if (may_leave && random_.below(40) == 0) {
      content.leaving = state.left = true;
    } else if (may_join && random_.below(12) == 0) {
      content.join = {random_.below(2) == 0, random_.below(2) == 0};
      state.joined = true;
    } else if (random_.below(10) == 0) {
      content.steps.push_back({16, state.steps++});
    } else {
      for (std::uint64_t i = 1 + random_.below(3); i > 0; --i) add_operation(rank, state, content);
    }
    return std::make_pair(static_cast<int>(rank), std::move(content));
  }
  void obey(const Order& order) {
    for (State& state : ranks_) {
      for (const Bucket& bucket : order.buckets) {
        for (const OrderedOperation& operation : bucket) state.in_flight.erase(operation.name);
      }
      for (const Refusal& refusal : order.refusals) {
        state.in_flight.erase(refusal.name);
        if (refusal.name == kJoinName) state.joined = false;
      }
      if (order.last_rank_to_join) state.joined = false;
    }
  }

 private:
  struct State {
    std::set<std::string> in_flight;
    bool joined = false;
    bool left = false;
    std::uint64_t steps = 0;
  };

  void add_operation(std::uint64_t rank, State& state, AnnouncementContent& content) {
    const std::uint64_t number = random_.below(7);
    if (number < 6) return announce(rank, number, 0, state, content);
    // Sometimes the ranks disagree about the members of a group.
    const std::uint64_t members = random_.below(20) == 0 ? 3 : 2;
    for (std::uint64_t i = 0; i < members; ++i) {
      if (state.in_flight.contains(fmt::format("op{}", 6 + i))) return;
    }
    for (std::uint64_t i = 0; i < members; ++i) announce(rank, 6 + i, members, state, content);
  }

  void announce(std::uint64_t rank, std::uint64_t number, std::uint64_t group_size, State& state,
                AnnouncementContent& content) {
    const std::string name = fmt::format("op{}", number);
    if (!state.in_flight.insert(name).second) return;
    Announced announced{name, {.kind = OperationKind::kAllreduce, .shape = {4}}, number % 2 == 0};
    Signature& signature = announced.signature;
    if (number == 1 || number == 2) {
      signature.kind = OperationKind::kAllgather;
      signature.shape[0] = static_cast<std::int64_t>(random_.below(3));
    }
    if (number == 3) {
      signature.kind = OperationKind::kAllToAll;
      announced.rows = {random_.below(2) == 0 ? 0 : rank, 1, 0};
    }
    if (group_size > 0) {
      signature.group = "g";
      signature.group_size = static_cast<std::uint32_t>(group_size);
    }
    if (random_.below(25) == 0) signature.shape.push_back(7);
    content.operations.push_back(std::move(announced));
  }

  Random& random_;
  std::vector<State> ranks_;
};

std::string stalls_of(const Coordinator& coordinator, SteadyClock::time_point now) {
  std::string text;
  for (const Stall& stall : coordinator.stalls(now, std::chrono::milliseconds{0})) {
    text += fmt::format("{}: {} / {}; ", stall.name, fmt::join(stall.ready_ranks, ","),
                        fmt::join(stall.missing_ranks, ","));
  }
  return text;
}

TEST(AggregatorTest, the_coordinator_orders_refuses_and_names_ranks_as_without_a_tree) {
  constexpr std::uint64_t kSeed = 70;
  for (std::uint64_t round = 0; round < 150; ++round) {
    SCOPED_TRACE(fmt::format("seed {}, round {}", kSeed, round));
    Random random(kSeed, round);
    const int size = 3 + static_cast<int>(random.below(12));
    const CoordinatorOptions options{size, 1000, 2, {}};
    Coordinator flat(options);
    Tree tree(random_hosts(random, size), size, 1 + static_cast<int>(random.below(3)), options);
    Programs programs(size, random);
    std::vector<std::pair<AnnouncementEncoder, AnnouncementDecoder>> links(static_cast<std::size_t>(size));
    auto now = SteadyClock::now();
    for (int event = 0; event < 400; ++event) {
      auto said = programs.next(round % 3 != 0, round % 3 == 2 && event > 200);
      if (!said) continue;
      now += std::chrono::seconds(10);
      const int rank = said->first;
      auto& [encoder, decoder] = links[static_cast<std::size_t>(rank)];
      const AnnouncementContent content = decoder.decode(encoder.encode(said->second));
      SCOPED_TRACE(event);
      for (const Announced& announced : content.operations) flat.announce(rank, announced, now);
      for (const PlanStep& step : content.steps) flat.begin_step(rank, step);
      if (content.join) flat.join(rank, *content.join);
      if (content.leaving) flat.depart(rank);
      tree.say(rank, said->second, now);
      for (int hop = 1; hop < size; ++hop) tree.deliver_all(now + hop * Aggregator::kPatience);
      const auto later = now + std::chrono::seconds(9);
      ASSERT_EQ(stalls_of(tree.coordinator, later), stalls_of(flat, later)) << event;
      const Order expected = flat.take_order();
      const Order order = tree.coordinator.take_order();
      ASSERT_EQ(text_of(order), text_of(expected)) << event;
      tree.obey(order);
      programs.obey(order);
    }
  }
}

TEST(AggregatorTest, what_is_announced_in_any_order_with_any_delay_is_ordered_once_with_the_same_sizes) {
  constexpr std::uint64_t kSeed = 71;
  for (std::uint64_t round = 0; round < 100; ++round) {
    SCOPED_TRACE(fmt::format("seed {}, round {}", kSeed, round));
    Random random(kSeed, round);
    const int size = 3 + static_cast<int>(random.below(20));
    const CoordinatorOptions options{size, 0, 2, {}};
    Tree tree(random_hosts(random, size), size, 1 + static_cast<int>(random.below(3)), options);
    auto now = SteadyClock::now();
    constexpr std::uint64_t kOperations = 30;
    std::vector<std::deque<std::uint64_t>> unsaid;
    for (int rank = 0; rank < size; ++rank) {
      const auto order = permutation(kOperations, kSeed + round, static_cast<std::uint64_t>(rank));
      unsaid.emplace_back(order.begin(), order.end());
    }
    std::map<std::string, std::vector<std::int64_t>> ordered;
    for (int quiet = 0; quiet < 3 * size;) {
      now += std::chrono::milliseconds(random.below(20));
      const auto rank = random.below(static_cast<std::uint64_t>(size));
      bool moved = tree.deliver(static_cast<int>(rank == 0 ? 1 : rank), now);
      if (random.below(2) == 0 && !unsaid[rank].empty()) {
        const std::uint64_t number = unsaid[rank].front();
        unsaid[rank].pop_front();
        const auto rows = static_cast<std::int64_t>(number * rank % 5);
        const Signature signature{.kind = OperationKind::kAllgather, .shape = {rows, 2}};
        tree.say(static_cast<int>(rank), {{{fmt::format("op{}", number), signature, true}}, false}, now);
        moved = true;
      }
      const Order order = tree.coordinator.take_order();
      EXPECT_THAT(order.refusals, IsEmpty());
      for (const Bucket& bucket : order.buckets) {
        for (const OrderedOperation& operation : bucket) {
          EXPECT_TRUE(ordered.emplace(operation.name, operation.sizes).second) << operation.name;
        }
      }
      tree.obey(order);
      const bool all_said = std::ranges::all_of(unsaid, [](const auto& one) { return one.empty(); });
      quiet = moved || !all_said || ordered.size() < kOperations ? 0 : quiet + 1;
    }
    for (std::uint64_t number = 0; number < kOperations; ++number) {
      std::vector<std::int64_t> expected;
      for (std::uint64_t rank = 0; rank < static_cast<std::uint64_t>(size); ++rank) {
        expected.push_back(static_cast<std::int64_t>(number * rank % 5));
      }
      if (std::ranges::all_of(expected, [](std::int64_t rows) { return rows == 0; })) expected.clear();
      EXPECT_EQ(ordered.at(fmt::format("op{}", number)), expected) << number;
    }
  }
}

TEST(AggregatorTest, a_thousand_ranks_are_few_messages_at_rank_0) {
  std::vector<std::vector<int>> hosts;
  for (int rank = 0; rank < 1024; ++rank) {
    if (rank % 8 == 0) hosts.emplace_back();
    hosts.back().push_back(rank);
  }
  Tree tree(hosts, 1024, 16, {1024, 0, 128, {}});
  const auto now = SteadyClock::now();
  for (int use = 0; use < 3; ++use) {
    for (int rank = 0; rank < 1024; ++rank) {
      tree.say(rank, {{{"x", {.kind = OperationKind::kAllreduce, .shape = {4}}}}, false}, now);
    }
    tree.messages_at_root = 0;
    for (int hop = 0; hop < 4; ++hop) tree.deliver_all(now);
    EXPECT_LE(tree.messages_at_root, 32);
    const Order order = tree.coordinator.take_order();
    ASSERT_EQ(order.buckets.size(), 1U);
    tree.obey(order);
  }
}

TEST(AggregatorTest, an_incomplete_operation_is_told_when_it_has_waited_and_not_before) {
  Aggregator aggregator({1, 2, 3});
  const auto now = SteadyClock::now();
  const Signature signature{.kind = OperationKind::kAllreduce, .shape = {4}};
  aggregator.take({2, {2, 3}}, {{{"x", signature}}, false}, now);
  EXPECT_FALSE(aggregator.next_announcement(now + Aggregator::kPatience / 2));
  EXPECT_EQ(aggregator.next_deadline(), now + Aggregator::kPatience);
  const auto told = aggregator.next_announcement(now + Aggregator::kPatience);
  ASSERT_TRUE(told);
  ASSERT_EQ(told->operations.size(), 1U);
  EXPECT_THAT(told->operations[0].ranks, ElementsAre(2, 3));
  EXPECT_FALSE(aggregator.next_deadline());
  // The rest completes it.
  aggregator.take({1, {1}}, {{{"x", signature}}, false}, now + Aggregator::kPatience * 2);
  const auto rest = aggregator.next_announcement(now + Aggregator::kPatience * 2);
  ASSERT_TRUE(rest);
  EXPECT_THAT(rest->operations.at(0).ranks, ElementsAre(1));
}

TEST(AggregatorTest, nobody_speaks_for_others_or_twice) {
  Aggregator aggregator({1, 2, 3});
  const auto now = SteadyClock::now();
  const auto refusal_of = [&](const NegotiationPlace::Child& child, const AnnouncementContent& content) {
    try {
      aggregator.take(child, content, now);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
      return std::string(error.what());
    }
    return std::string("none");
  };
  const Announced x{"x", {.kind = OperationKind::kBarrier}, true};
  EXPECT_EQ(refusal_of({2, {2}}, {{x}, false}), "none");
  EXPECT_THAT(refusal_of({2, {2}}, {{x}, false}), HasSubstr("rank 2 announced 'x' twice"));
  Announced foreign = x;
  foreign.ranks = {3};
  EXPECT_THAT(refusal_of({2, {2}}, {{foreign}, false}), HasSubstr("rank 2 does not speak for rank 3"));
  AnnouncementContent note;
  note.relayed.push_back({1, {}});
  EXPECT_THAT(refusal_of({2, {2}}, note), HasSubstr("rank 2 does not speak for rank 1"));
}

}  // namespace
}  // namespace gyre::engine::internal
