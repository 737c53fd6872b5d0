// Training is exact only if each gradient counts in one step, the same on all servers. Random schedules look for an
// order of events in which a gradient is lost, counted twice, or counted differently by two servers.
#include "gyre/params/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::params {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kSchedules = 10'000;

TEST(Ledger, in_sync_a_block_is_decided_when_the_last_worker_hands_it_in) {
  Ledger ledger(3, 2, {});
  EXPECT_THAT(ledger.hand_in(2, 0).contributors, IsEmpty());
  EXPECT_THAT(ledger.hand_in(0, 0).contributors, IsEmpty());
  EXPECT_THAT(ledger.hand_in(0, 1).contributors, IsEmpty());
  const Ledger::Decision decision = ledger.hand_in(1, 0);
  EXPECT_THAT(decision.contributors, ElementsAre(0, 1, 2));
  EXPECT_THAT(decision.answers, ElementsAre(Ledger::Answer{0, 0}, Ledger::Answer{1, 0}, Ledger::Answer{2, 0}));
}

TEST(Ledger, in_sync_nobody_waits_for_a_worker_that_has_run_out_of_data) {
  Ledger ledger(2, 1, {});
  EXPECT_THAT(ledger.hand_in(1, 0).contributors, IsEmpty());
  const auto decisions = ledger.leave(0);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_THAT(decisions[0].contributors, ElementsAre(1));
  EXPECT_THAT(ledger.hand_in(1, 0).contributors, ElementsAre(1));
  EXPECT_EQ(ledger.active_workers(), 1);
}

TEST(Ledger, in_async_everybody_goes_on_at_once) {
  Ledger ledger(2, 2, {.kind = Consistency::kAsync});
  EXPECT_THAT(ledger.hand_in(0, 1).answers, ElementsAre(Ledger::Answer{0, 1}));
  EXPECT_THAT(ledger.hand_in(0, 0).answers, ElementsAre(Ledger::Answer{0, 0}));
  EXPECT_THAT(ledger.hand_in(0, 1).answers, ElementsAre(Ledger::Answer{0, 1}));
  EXPECT_EQ(ledger.clock(0), 1U);
}

TEST(Ledger, a_bounded_worker_waits_for_the_slowest) {
  Ledger ledger(2, 1, {.kind = Consistency::kBounded, .staleness = 1});
  EXPECT_THAT(ledger.hand_in(0, 0).answers, ElementsAre(Ledger::Answer{0, 0}));
  EXPECT_THAT(ledger.hand_in(0, 0).answers, IsEmpty()) << "two steps ahead";
  EXPECT_THAT(ledger.hand_in(1, 0).answers, ElementsAre(Ledger::Answer{0, 0}, Ledger::Answer{1, 0}));
}

TEST(Ledger, no_bounded_worker_waits_for_one_that_pauses) {
  Ledger ledger(3, 1, {.kind = Consistency::kBounded, .staleness = 0});
  EXPECT_THAT(ledger.hand_in(0, 0).answers, IsEmpty());
  EXPECT_THAT(ledger.hand_in(1, 0).answers, IsEmpty());
  const auto decisions = ledger.pause(2);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_THAT(decisions[0].answers, ElementsAre(Ledger::Answer{0, 0}, Ledger::Answer{1, 0}));
  ledger.pause(0);
  EXPECT_THAT(ledger.hand_in(1, 0).answers, ElementsAre(Ledger::Answer{1, 0}));
  ledger.pause(1);
  for (const int worker : {2, 0, 1}) ledger.resume(worker);
  for (const int worker : {0, 1, 2}) EXPECT_EQ(ledger.clock(worker), 2U) << "from here on they go together";
  EXPECT_THAT(ledger.hand_in(1, 0).answers, IsEmpty());
  EXPECT_THROW(ledger.pause(1), Error) << "in the middle of a step";
}

TEST(Ledger, what_the_protocol_does_not_allow_is_an_error) {
  Ledger ledger(2, 2, {});
  ledger.hand_in(0, 0);
  EXPECT_THROW(ledger.hand_in(0, 0), Error) << "twice in a step";
  EXPECT_THROW(ledger.hand_in(0, 2), Error) << "no such block";
  EXPECT_THROW(ledger.leave(0), Error) << "in the middle of a step";
  ledger.leave(1);
  EXPECT_THROW(ledger.leave(1), Error);
  EXPECT_THROW(ledger.hand_in(1, 0), Error);
}

/// A job of several servers whose ledgers get the same workers' blocks in orders of their own. In kAsync and kBounded
/// workers die between any two messages, and each server notices that at a time of its own. (In kSync a Quorum decides
/// for all servers where workers may die.)
class Schedule {
 public:
  Schedule(std::uint64_t seed, Consistency kind)
      : random_(seed),
        options_{.kind = kind, .staleness = random_.below(4)},
        workers_(1 + random_.below(5)),
        blocks_(static_cast<std::uint32_t>(1 + random_.below(3))) {
    const auto servers = 1 + random_.below(3);
    for (std::uint64_t i = 0; i < servers; ++i) {
      ledgers_.emplace_back(static_cast<int>(workers_.size()), blocks_, options_);
    }
    for (Worker& worker : workers_) {
      worker.steps = random_.below(6);
      worker.to_push.resize(servers);
      worker.awaited.resize(servers);
      worker.leaves.resize(servers, true);
    }
  }

  /// Runs events in random order until nothing is left to do.
  void run() {
    for (std::size_t i = 0; i < workers_.size(); ++i) begin_step(i);
    for (std::vector<std::pair<std::size_t, std::size_t>> possible = possible_events(); !possible.empty();
         possible = possible_events()) {
      const auto [worker, server] = possible[random_.below(possible.size())];
      happen(worker, server);
    }
    for (const Worker& worker : workers_) {
      if (worker.dead) continue;
      EXPECT_EQ(worker.done, worker.steps) << "somebody waits for ever";
    }
    for (const Ledger& ledger : ledgers_) EXPECT_EQ(ledger.active_workers(), 0);
    check_contributors();
  }

 private:
  struct Worker {
    std::uint64_t steps = 0;
    std::uint64_t done = 0;
    std::vector<std::vector<std::uint32_t>> to_push;  // By server: blocks on their way.
    std::vector<std::set<std::uint32_t>> awaited;     // By server: answers.
    std::vector<bool> leaves;                         // By server: still to be told, also of its death.
    bool dead = false;
  };

  void begin_step(std::size_t index) {
    Worker& worker = workers_[index];
    if (worker.done == worker.steps) return;
    for (std::size_t server = 0; server < ledgers_.size(); ++server) {
      for (std::uint32_t block = 0; block < blocks_; ++block) {
        worker.to_push[server].push_back(block);
        worker.awaited[server].insert(block);
      }
    }
    if (options_.kind != Consistency::kBounded) return;
    for (std::size_t other = 0; other < workers_.size(); ++other) {
      if (workers_[other].dead || workers_[other].done == workers_[other].steps) continue;
      for (const Ledger& ledger : ledgers_) {
        EXPECT_LE(worker.done, ledger.clock(static_cast<int>(other)) + options_.staleness) << "too far ahead";
      }
    }
  }

  std::vector<std::pair<std::size_t, std::size_t>> possible_events() const {
    std::vector<std::pair<std::size_t, std::size_t>> possible;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      for (std::size_t server = 0; server < ledgers_.size(); ++server) {
        const bool over = workers_[i].dead || workers_[i].done == workers_[i].steps;
        const bool leaving = over && workers_[i].leaves[server];
        if (leaving || !workers_[i].to_push[server].empty()) possible.emplace_back(i, server);
      }
    }
    return possible;
  }

  void happen(std::size_t index, std::size_t server) {
    Worker& worker = workers_[index];
    if (options_.kind != Consistency::kSync && !worker.dead && random_.below(25) == 0) {
      worker.dead = true;  // What it has sent and has not arrived is lost.
      for (auto& blocks : worker.to_push) blocks.clear();
      return;
    }
    if (worker.dead) {
      worker.leaves[server] = false;
      for (const auto& decision : ledgers_[server].lose(static_cast<int>(index))) follow(server, decision);
      return;
    }
    if (worker.done == worker.steps) {
      worker.leaves[server] = false;
      for (const auto& decision : ledgers_[server].leave(static_cast<int>(index))) follow(server, decision);
      return;
    }
    auto& blocks = worker.to_push[server];
    const auto chosen = blocks.begin() + static_cast<std::ptrdiff_t>(random_.below(blocks.size()));
    const std::uint32_t block = *chosen;
    blocks.erase(chosen);
    follow(server, ledgers_[server].hand_in(static_cast<int>(index), block));
  }

  void follow(std::size_t server, const Ledger::Decision& decision) {
    if (!decision.contributors.empty()) {
      const std::uint64_t step = decided_[{server, decision.block}]++;
      EXPECT_TRUE(std::ranges::is_sorted(decision.contributors));
      for (const int worker : decision.contributors) {
        EXPECT_EQ(workers_[static_cast<std::size_t>(worker)].done, step) << "counted in a step that it is not in";
      }
      const auto [place, first] = contributors_.emplace(step, decision.contributors);
      EXPECT_EQ(place->second, decision.contributors) << "two servers, or two blocks, disagree about step " << step;
    }
    for (const auto& [number, block] : decision.answers) {
      Worker& worker = workers_[static_cast<std::size_t>(number)];
      EXPECT_EQ(worker.awaited[server].erase(block), 1U) << "an answer that nobody waits for";
      if (worker.dead) continue;
      if (!std::ranges::all_of(worker.awaited, [](const auto& blocks) { return blocks.empty(); })) continue;
      ++worker.done;
      begin_step(static_cast<std::size_t>(number));
    }
  }

  void check_contributors() const {
    if (options_.kind != Consistency::kSync) return;
    std::map<int, std::uint64_t> counted;
    for (const auto& [step, contributors] : contributors_) {
      for (const int worker : contributors) ++counted[worker];
    }
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      EXPECT_EQ(counted[static_cast<int>(i)], workers_[i].steps) << "worker " << i << " was not counted exactly once";
    }
  }

  Random random_;
  ConsistencyOptions options_;
  std::vector<Worker> workers_;
  std::uint32_t blocks_;
  std::vector<Ledger> ledgers_;
  std::map<std::pair<std::size_t, std::uint32_t>, std::uint64_t> decided_;
  std::map<std::uint64_t, std::vector<int>> contributors_;
};

class RandomSchedules : public testing::TestWithParam<Consistency> {};

TEST_P(RandomSchedules, nothing_is_lost_or_doubled_and_nobody_waits_for_ever) {
  for (std::uint64_t seed = 0; seed < kSchedules && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule(seed, GetParam()).run();
  }
}

INSTANTIATE_TEST_SUITE_P(All, RandomSchedules,
                         testing::Values(Consistency::kSync, Consistency::kAsync, Consistency::kBounded));

}  // namespace
}  // namespace gyre::params
