// One verdict for each gradient, the same on all servers, whoever is slow, leaves or dies.
#include "gyre/params/quorum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::params {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Verdict = Quorum::Verdict;

TEST(Quorum, the_first_workers_make_up_a_step_and_the_last_one_is_late) {
  Quorum quorum(3, 2, 1);
  EXPECT_THAT(quorum.ready(2, false), IsEmpty());
  EXPECT_THAT(quorum.ready(2, false), IsEmpty()) << "on both servers, but alone";
  EXPECT_THAT(quorum.ready(0, false), IsEmpty()) << "on one server";
  EXPECT_THAT(quorum.ready(1, false), IsEmpty());
  EXPECT_THAT(quorum.ready(0, false),
              ElementsAre(Verdict{.step = 1, .contributors = {0, 2}, .late = {}, .asking = {}}));
  EXPECT_THAT(quorum.ready(1, false), ElementsAre(Verdict{.step = 1, .contributors = {}, .late = {1}, .asking = {}}));
  for (const int worker : {1, 1, 0}) EXPECT_THAT(quorum.ready(worker, false), IsEmpty());
  EXPECT_THAT(quorum.ready(0, false),
              ElementsAre(Verdict{.step = 2, .contributors = {0, 1}, .late = {}, .asking = {}}));
}

TEST(Quorum, a_worker_that_asks_gets_what_there_is) {
  Quorum quorum(2, 1, 0);
  EXPECT_THAT(quorum.ready(0, true), ElementsAre(Verdict{.step = 0, .contributors = {}, .late = {}, .asking = {0}}));
  EXPECT_THAT(quorum.ready(0, false), IsEmpty());
  EXPECT_THAT(quorum.ready(1, true), ElementsAre(Verdict{.step = 0, .contributors = {}, .late = {}, .asking = {1}}));
  EXPECT_THAT(quorum.ready(1, false),
              ElementsAre(Verdict{.step = 1, .contributors = {0, 1}, .late = {}, .asking = {}}));
}

TEST(Quorum, no_step_waits_for_workers_that_are_busy_with_something_else_or_gone) {
  Quorum quorum(4, 1, 0);
  EXPECT_THAT(quorum.ready(0, false), IsEmpty());
  EXPECT_THAT(quorum.leave(3), IsEmpty());
  EXPECT_THAT(quorum.lose(1), IsEmpty());
  EXPECT_THAT(quorum.pause(2), ElementsAre(Verdict{.step = 1, .contributors = {0}, .late = {}, .asking = {}}));
  EXPECT_THAT(quorum.resume(2), IsEmpty());
  EXPECT_THAT(quorum.ready(0, false), IsEmpty());
  EXPECT_THAT(quorum.ready(2, false), ElementsAre(Verdict{.step = 1, .contributors = {}, .late = {2}, .asking = {}}));
  EXPECT_THAT(quorum.ready(2, false),
              ElementsAre(Verdict{.step = 2, .contributors = {0, 2}, .late = {}, .asking = {}}));
  EXPECT_EQ(quorum.active_workers(), 2);
}

Verdict admitted(int worker, std::uint64_t step) {
  return {.step = step, .contributors = {}, .late = {}, .asking = {}, .admitted = {worker}};
}

TEST(Quorum, gradients_that_are_announced_after_a_step_has_all_its_places_are_refused_when_it_is_taken) {
  Quorum quorum(3, 1, 1);
  EXPECT_THAT(quorum.announce(2), ElementsAre(admitted(2, 0)));
  EXPECT_THAT(quorum.announce(0), ElementsAre(admitted(0, 0)));
  EXPECT_THAT(quorum.announce(1), IsEmpty());
  EXPECT_THAT(quorum.ready(2, false), IsEmpty());
  EXPECT_THAT(quorum.ready(0, false),
              ElementsAre(Verdict{
                  .step = 1, .contributors = {0, 2}, .late = {}, .asking = {}, .admitted = {}, .refused = {1}}));
  EXPECT_THAT(
      quorum.announce(1),
      ElementsAre(Verdict{.step = 1, .contributors = {}, .late = {}, .asking = {}, .admitted = {}, .refused = {1}}))
      << "it has not asked for the parameters";
  EXPECT_THAT(quorum.ready(1, true), ElementsAre(Verdict{.step = 1, .contributors = {}, .late = {}, .asking = {1}}));
  EXPECT_THAT(quorum.announce(1), ElementsAre(admitted(1, 1)));
}

TEST(Quorum, an_admitted_worker_that_dies_or_pauses_gives_its_place_to_the_next) {
  for (const bool dies : {false, true}) {
    Quorum quorum(3, 1, 1);
    EXPECT_THAT(quorum.announce(0), ElementsAre(admitted(0, 0)));
    EXPECT_THAT(quorum.announce(1), ElementsAre(admitted(1, 0)));
    EXPECT_THAT(quorum.announce(2), IsEmpty());
    EXPECT_THAT(quorum.ready(0, false), IsEmpty());
    EXPECT_THAT(dies ? quorum.lose(1) : quorum.pause(1), ElementsAre(admitted(2, 0)));
    EXPECT_THAT(quorum.announce(2), ElementsAre(admitted(2, 0))) << "again";
    EXPECT_THAT(quorum.ready(2, false),
                ElementsAre(Verdict{.step = 1, .contributors = {0, 2}, .late = {}, .asking = {}}));
  }
}

TEST(Quorum, what_a_dead_worker_had_sent_does_not_count) {
  Quorum quorum(2, 2, 0);
  quorum.ready(0, false);
  quorum.ready(0, false);
  EXPECT_THAT(quorum.lose(0), IsEmpty());
  EXPECT_THAT(quorum.ready(0, false), IsEmpty()) << "a word of another server that was on its way";
  quorum.ready(1, false);
  EXPECT_THAT(quorum.ready(1, false), ElementsAre(Verdict{.step = 1, .contributors = {1}, .late = {}, .asking = {}}));
}

TEST(Quorum, what_the_protocol_does_not_allow_is_an_error) {
  Quorum quorum(2, 2, 0);
  quorum.ready(0, false);
  EXPECT_THROW(quorum.leave(0), Error) << "in the middle of a step";
  quorum.ready(0, false);
  EXPECT_THROW(quorum.ready(0, false), Error) << "before the verdict";
  quorum.leave(1);
  EXPECT_THROW(quorum.leave(1), Error);
  EXPECT_THROW(quorum.ready(1, false), Error);
}

/// A job of random size, whose workers' messages arrive at the servers in random order, and whose workers sum up
/// metrics, leave and die at random moments.
class Schedule {
 public:
  explicit Schedule(std::uint64_t seed)
      : random_(seed),
        workers_(1 + random_.below(5)),
        servers_(static_cast<int>(1 + random_.below(3))),
        backup_(static_cast<int>(random_.below(workers_.size()))),
        quorum_(static_cast<int>(workers_.size()), servers_, backup_) {
    for (Worker& worker : workers_) worker.steps_left = 1 + random_.below(5);
    announces_ = backup_ > 0 && random_.below(2) == 0;
  }

  void run() {
    int idle = 0;
    while (quorum_.active_workers() > 0) {
      const int number = static_cast<int>(random_.below(workers_.size()));
      ASSERT_LT(idle, 10'000) << "nothing moves any more";
      idle = act(number) ? 0 : idle + 1;
      if (testing::Test::HasFailure()) return;
    }
    for (const Worker& worker : workers_) {
      if (worker.dead) continue;
      EXPECT_EQ(worker.verdicts, worker.sent) << "a gradient without a verdict, or with two";
    }
  }

 private:
  struct Worker {
    std::uint64_t steps_left = 0;
    int on_their_way = 0;  ///< Of its gradient: servers that do not have it yet.
    bool waits = false;
    bool announced = false;
    bool asks = false;
    bool sums = false;
    bool dead = false;
    bool left = false;
    std::uint64_t seen = 0;
    std::uint64_t sent = 0;
    std::uint64_t verdicts = 0;
  };

  Worker& at(int number) { return workers_[static_cast<std::size_t>(number)]; }

  bool act(int number) {
    Worker& worker = at(number);
    if (worker.dead || worker.left) return false;
    if (random_.below(40) == 0) {
      worker.dead = true;
      take(quorum_.lose(number));
      if (worker.on_their_way > 0) take(quorum_.ready(number, false));
      finish_sums();
      return true;
    }
    if (worker.on_their_way > 0) {
      --worker.on_their_way;
      take(quorum_.ready(number, worker.asks));
      return true;
    }
    if (worker.waits || worker.sums || worker.announced) return false;
    if (worker.steps_left == 0) {
      worker.left = true;
      take(quorum_.leave(number));
      finish_sums();
      return true;
    }
    if (random_.below(6) == 0) {
      worker.sums = true;
      take(quorum_.pause(number));
      finish_sums();
      return true;
    }
    --worker.steps_left;
    ++worker.sent;
    if (announces_) {
      worker.announced = true;
      take(quorum_.announce(number));
    } else {
      send(worker, false);
    }
    return true;
  }

  void send(Worker& worker, bool asks) {
    worker.asks = asks;
    worker.waits = true;
    worker.on_their_way = servers_;
  }

  /// The sum is there when all have given.
  void finish_sums() {
    for (const Worker& worker : workers_) {
      if (!worker.dead && !worker.left && !worker.sums) return;
    }
    for (int number = 0; number < static_cast<int>(workers_.size()); ++number) {
      if (std::exchange(at(number).sums, false)) take(quorum_.resume(number));
    }
  }

  void take(const Quorum::Verdicts& verdicts) {
    for (const Verdict& verdict : verdicts) {
      EXPECT_EQ(verdict.step, verdict.contributors.empty() ? steps_ : ++steps_);
      for (const int number : verdict.contributors) {
        EXPECT_TRUE(at(number).waits);
        EXPECT_FALSE(at(number).dead);
        EXPECT_EQ(at(number).on_their_way, 0) << "a gradient was used in part";
        EXPECT_EQ(at(number).seen, steps_ - 1) << "a gradient of other parameters";
        answer(number);
      }
      for (const int number : verdict.admitted) {
        EXPECT_TRUE(std::exchange(at(number).announced, false));
        EXPECT_EQ(at(number).seen, steps_) << "a gradient of other parameters";
        send(at(number), false);
      }
      for (const int number : verdict.refused) {
        EXPECT_TRUE(std::exchange(at(number).announced, false));
        EXPECT_LT(at(number).seen, steps_) << "a gradient was dropped that was not late";
        send(at(number), true);
      }
      for (const int number : verdict.asking) answer(number);
      for (const int number : verdict.late) {
        EXPECT_FALSE(announces_) << "a gradient was dropped after it had been admitted";
        EXPECT_LT(at(number).seen, steps_) << "a gradient was dropped that was not late";
        answer(number);
      }
      EXPECT_TRUE(std::ranges::is_sorted(verdict.contributors));
      EXPECT_LE(verdict.contributors.size(), workers_.size());
    }
  }

  void answer(int number) {
    at(number).waits = false;
    at(number).seen = steps_;
    ++at(number).verdicts;
  }

  Random random_;
  bool announces_ = false;
  std::vector<Worker> workers_;
  int servers_;
  int backup_;
  Quorum quorum_;
  std::uint64_t steps_ = 0;
};

TEST(Quorum, random_schedules_give_each_gradient_one_verdict) {
  constexpr std::uint64_t kSchedules = 10'000;
  for (std::uint64_t seed = 0; seed < kSchedules; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Schedule(seed).run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace gyre::params
