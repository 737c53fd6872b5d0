// What every back end of Group promises, whoever provides it: the engine is written against these.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/group/group.h"
#include "gyre/group/in_process.h"
#include "gyre/group/lane.h"
#include "gyre/group/subgroup.h"
#include "gyre/net/socket.h"
#include "gyre/net/stream.h"
#include "tests/conformance/back_ends.h"

namespace gyre::group {
namespace {

using std::chrono::milliseconds;

using GroupConformance = BackEndTest;

TEST_P(GroupConformance, links_connect_every_pair_on_every_channel) {
  run(5, [](Group& group) {
    for (const std::uint64_t channel : {1U, 2U, 77U}) {
      std::vector<std::unique_ptr<net::Stream>> links(5);
      for (int peer = 0; peer < 5; ++peer) {
        if (peer == group.rank()) continue;
        links[peer] = group.open_link(peer, channel, soon());
        say(*links[peer], 1000 * group.rank() + 10 * peer + static_cast<int>(channel));
      }
      for (int peer = 0; peer < 5; ++peer) {
        if (peer == group.rank()) continue;
        EXPECT_EQ(hear(*links[peer]), 1000 * peer + 10 * group.rank() + static_cast<int>(channel));
        EXPECT_NE(links[peer]->peer().find("rank " + std::to_string(peer)), std::string::npos);
      }
    }
  });
}

TEST_P(GroupConformance, channels_may_be_opened_in_another_order_by_two_threads_of_a_rank) {
  run(2, [](Group& group) {
    const int peer = 1 - group.rank();
    const auto open = [&](std::uint64_t channel) {
      const auto link = group.open_link(peer, channel, soon());
      say(*link, static_cast<int>(channel));
      EXPECT_EQ(hear(*link), static_cast<int>(channel));
    };
    std::thread first([&] { open(1); });
    std::thread second([&] { open(2); });
    first.join();
    second.join();
  });
}

TEST_P(GroupConformance, links_connect_ranks_of_different_hosts) {
  run(4,
      [](Group& group) {
        for (int peer = 0; peer < 4; ++peer) {
          if (peer == group.rank()) continue;
          const auto link = group.open_link(peer, 3, soon());
          say(*link, group.rank());
          EXPECT_EQ(hear(*link), peer);
        }
      },
      {"a", "b", "a", "b"});
}

/// What others connect to this rank.
class Incoming {
 public:
  Group::LinkSink sink() {
    return [this](int peer, std::unique_ptr<net::Stream> link) {
      const std::lock_guard lock(mutex_);
      links_[peer] = std::move(link);
      changed_.notify_all();
    };
  }
  net::Stream& from(int peer) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, milliseconds(20'000), [&] { return links_.contains(peer); }));
    return *links_.at(peer);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::unique_ptr<net::Stream>> links_;
};

// Process groups of hundreds of ranks exchange messages with a few: nobody may have to ask for the others' links.
TEST_P(GroupConformance, any_rank_connects_to_any_other_that_asks_for_nothing) {
  run(4,
      [](Group& group) {
        Incoming incoming;
        const bool early = group.rank() % 2 == 0;
        if (early) group.accept(5, incoming.sink());
        std::vector<std::unique_ptr<net::Stream>> links(4);
        for (int peer = 0; peer < 4; ++peer) {
          if (peer == group.rank()) continue;
          links[peer] = group.connect(peer, 5, soon());
          say(*links[peer], 10 * group.rank() + peer);
        }
        if (!early) group.accept(5, incoming.sink());
        for (int peer = 0; peer < 4; ++peer) {
          if (peer == group.rank()) continue;
          EXPECT_EQ(hear(incoming.from(peer)), 10 * peer + group.rank());
        }
        const auto everybody_is_through = group.share_segment(6, 64, soon());
        group.accept(5, {});
      },
      {"a", "a", "a", "a"});
}

TEST_P(GroupConformance, a_direct_link_that_is_refused_ends) {
  run(2, [](Group& group) {
    if (group.rank() == 1) {
      group.accept(5, {});
      say(*group.open_link(0, 1, soon()), 1);
      static_cast<void>(group.share_segment(6, 64, soon()));
      return;
    }
    EXPECT_EQ(hear(*group.open_link(1, 1, soon())), 1);
    const auto link = group.connect(1, 5, soon());
    EXPECT_EQ(failure_of([&] { hear(*link); }).code(), ErrorCode::kPeerLost);
    static_cast<void>(group.share_segment(6, 64, soon()));
  });
}

TEST_P(GroupConformance, a_part_has_direct_links_of_its_own) {
  run(3, [](Group& group) {
    const std::shared_ptr<Group> whole(&group, [](Group*) {});
    const std::unique_ptr<Group> part = group.rank() == 1 ? nullptr : make_subgroup(whole, {2, 0}, 1);
    if (!part) return;
    Incoming incoming;
    part->accept(5, incoming.sink());
    const auto link = part->connect(1 - part->rank(), 5, soon());
    say(*link, part->rank());
    EXPECT_EQ(hear(incoming.from(1 - part->rank())), 1 - part->rank());
    say(*link, 7);
    EXPECT_EQ(hear(incoming.from(1 - part->rank())), 7);
    part->accept(5, {});
  });
}

TEST_P(GroupConformance, the_topology_groups_ranks_by_host_in_the_order_of_their_lowest_rank) {
  run(5,
      [](Group& group) {
        const std::vector<std::vector<int>> expected{{0, 2, 4}, {1}, {3}};
        EXPECT_EQ(group.topology().hosts(), expected);
        const std::vector<int> host_index{0, 1, 0, 2, 0};
        const std::vector<int> local_rank{0, 0, 1, 0, 2};
        EXPECT_EQ(group.topology().host_index(), host_index[group.rank()]);
        EXPECT_EQ(group.topology().local_rank(), local_rank[group.rank()]);
        EXPECT_EQ(group.topology().local_size(), group.rank() % 2 == 0 ? 3 : 1);
        EXPECT_FALSE(group.topology().one_host());
        EXPECT_GT(group.topology().self().process, 0);
      },
      {"z", "b", "z", "c", "z"});
}

TEST_P(GroupConformance, a_segment_is_shared_by_the_ranks_of_a_host_and_by_no_other) {
  static constexpr std::size_t kBytes = 3 << 20;
  run(4,
      [](Group& group) {
        const auto segment = group.share_segment(9, kBytes, soon());
        ASSERT_EQ(segment->bytes().size(), kBytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment->bytes().data()) % 4096, 0U);
        for (const std::size_t at : {std::size_t{0}, kBytes - 64}) {
          auto* counter = reinterpret_cast<std::atomic<int>*>(segment->bytes().data() + at);
          counter->fetch_add(1 << (4 * group.rank()));
        }
        // Every rank has added before any rank looks.
        for (int peer = 0; peer < 4; ++peer) {
          if (peer == group.rank()) continue;
          const auto link = group.open_link(peer, 1, soon());
          say(*link, 0);
          hear(*link);
        }
        const int expected = group.rank() % 2 == 0 ? 0x0101 : 0x1010;
        for (const std::size_t at : {std::size_t{0}, kBytes - 64}) {
          EXPECT_EQ(reinterpret_cast<std::atomic<int>*>(segment->bytes().data() + at)->load(), expected);
        }
      },
      {"a", "b", "a", "b"});
}

TEST_P(GroupConformance, ranks_that_want_segments_of_different_sizes_all_learn_it) {
  run(3, [](Group& group) {
    const Error error = failure_of(
        [&] { group.share_segment(9, group.rank() == 2 ? 8192 : 4096, Deadline::after(milliseconds(2000))); });
    if (error.code() != ErrorCode::kMismatch) {
      // A rank whose own request was fine may see the failing ranks go instead.
      EXPECT_TRUE(error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kTimeout ||
                  error.code() == ErrorCode::kPeerLeft)
          << error.what();
    }
  });
}

TEST_P(GroupConformance, an_abort_wakes_every_kind_of_waiter_with_its_reason) {
  run(4, [](Group& group) {
    if (group.rank() == 3) {
      // The others are (or soon will be) inside their waits; the outcome is the same either way.
      const auto link = group.open_link(0, 5, soon());
      hear(*link);
      group.abort(Error(ErrorCode::kMismatch, "rank 3 wants float32"));
      EXPECT_EQ(failure_of([&] { group.abort_signal().throw_if_triggered(); }).code(), ErrorCode::kMismatch);
      return;
    }
    std::vector<Error> failures;
    if (group.rank() == 0) {
      const auto link = group.open_link(3, 5, soon());
      say(*link, 1);
      failures.push_back(failure_of([&] { group.open_link(1, 6, soon()); }));
    } else if (group.rank() == 1) {
      failures.push_back(failure_of([&] { group.share_segment(1, 4096, soon()); }));
    } else {
      failures.push_back(failure_of([&] { group.open_link(3, 6, soon()); }));
    }
    failures.push_back(failure_of([&] { group.open_link((group.rank() + 1) % 4, 8, soon()); }));
    EXPECT_NO_THROW(net::wait_for(group.abort_signal().fd(), POLLIN, soon(), "the abort"));
    for (const Error& failure : failures) {
      EXPECT_EQ(failure.code(), ErrorCode::kMismatch);
      EXPECT_STREQ(failure.what(), "rank 3 wants float32");
    }
  });
}

TEST_P(GroupConformance, a_rank_that_may_be_lost_is_missed_by_nobody_unless_its_work_has_failed) {
  // Training that had diverged on one worker was survived like a death, and the job ended with success.
  for (const ErrorCode code : {ErrorCode::kPeerLost, ErrorCode::kPeerLeft, ErrorCode::kAborted,
                               ErrorCode::kInvalidArgument, ErrorCode::kCorruptData, ErrorCode::kNotFound,
                               ErrorCode::kIo, ErrorCode::kResourceExhausted, ErrorCode::kInternal}) {
    const bool survived = code == ErrorCode::kPeerLost || code == ErrorCode::kPeerLeft || code == ErrorCode::kAborted;
    run(3, [&](Group& group) {
      if (group.rank() == 0) group.tolerate_losses({1, 2});
      if (group.rank() < 2) {
        const auto link = group.open_link(1 - group.rank(), 1, soon());
        say(*link, 1);
        hear(*link);
      }
      const auto link = group.rank() == 0 ? nullptr : group.open_link(3 - group.rank(), 2, soon());
      if (group.rank() == 1) say(*link, 1);
      if (group.rank() == 2) {
        hear(*link);
        group.abort(Error(code, "rank 2 gives up"));
        EXPECT_EQ(group.abort_signal().reason()->code(), code);
        return;
      }
      group.wait_for_cause(2, 0, soon());
      EXPECT_EQ(group.abort_signal().triggered(), !survived) << error_code_name(code);
      EXPECT_EQ(group.was_lost(2), survived) << error_code_name(code);
      if (!survived) {
        EXPECT_STREQ(group.abort_signal().reason()->what(), "rank 2 gives up");
      }
    });
  }
}

TEST_P(GroupConformance, the_first_abort_wins_on_every_rank) {
  Mutex mutex;
  std::vector<std::string> reasons;
  run(4, [&](Group& group) {
    group.abort(Error(ErrorCode::kInternal, "reason of rank " + std::to_string(group.rank())));
    net::wait_for(group.abort_signal().fd(), POLLIN, soon(), "the abort");
    const MutexLock lock(mutex);
    reasons.emplace_back(group.abort_signal().reason()->what());
  });
  ASSERT_EQ(reasons.size(), 4U);
  for (const std::string& reason : reasons) EXPECT_EQ(reason, reasons.front());
}

TEST_P(GroupConformance, a_rank_that_left_fails_those_who_wait_for_it_and_nobody_else) {
  run(3, [](Group& group) {
    if (group.rank() == 1) {
      group.leave();
      group.leave();
      EXPECT_EQ(failure_of([&] { group.open_link(0, 1, soon()); }).code(), ErrorCode::kShutDown);
      return;
    }
    // The higher rank does not wait for the lower one: it first lets the news arrive.
    const Error cause = group.cause_of_loss(1, Error(ErrorCode::kInternal, "nothing was heard of rank 1"));
    EXPECT_EQ(cause.code(), ErrorCode::kPeerLeft) << cause.what();
    const Error error = failure_of([&] { group.open_link(1, 1, soon()); });
    EXPECT_EQ(error.code(), ErrorCode::kPeerLeft) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos);
    EXPECT_TRUE(group.has_left(1));
    EXPECT_GE(group.exit_count(), 1);
    EXPECT_FALSE(group.abort_signal().triggered());
    const auto link = group.open_link(2 - group.rank(), 2, soon());
    say(*link, 4);
    EXPECT_EQ(hear(*link), 4);
  });
}

TEST_P(GroupConformance, a_link_broken_by_an_exit_is_explained_as_one) {
  run(2, [](Group& group) {
    auto link = group.open_link(1 - group.rank(), 1, soon());
    if (group.rank() == 1) {
      link.reset();
      group.leave();
      return;
    }
    const Error seen = failure_of([&] { hear(*link); });
    EXPECT_EQ(seen.code(), ErrorCode::kPeerLost);
    EXPECT_EQ(group.cause_of_loss(1, seen).code(), ErrorCode::kPeerLeft);
  });
}

TEST_P(GroupConformance, a_peer_that_never_comes_is_a_timeout_that_names_it) {
  run(2, [](Group& group) {
    if (group.rank() == 0) {
      const Error error = failure_of([&] { group.open_link(1, 1, Deadline::after(milliseconds(50))); });
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos);
    }
    // Both stay until rank 0 has seen it.
    const auto link = group.open_link(1 - group.rank(), 2, soon());
    say(*link, 0);
    hear(*link);
  });
}

TEST_P(GroupConformance, a_group_of_one_has_its_own_segment) {
  run(1, [](Group& group) {
    EXPECT_EQ(group.size(), 1);
    EXPECT_EQ(group.share_segment(1, 100, soon())->bytes().size(), 100U);
    group.leave();
  });
}

TEST_P(GroupConformance, an_exception_of_one_rank_reaches_the_caller_with_its_rank) {
  const Error error = failure_of([] {
    run(3, [](Group& group) {
      if (group.rank() == 2) throw Error(ErrorCode::kCorruptData, "bad file");
      group.open_link(2, 1, soon());
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  EXPECT_STREQ(error.what(), "rank 2: bad file");
}

TEST_P(GroupConformance, a_lane_opens_links_when_first_used_and_maps_its_segment) {
  run(3, [](Group& group) {
    Lane lane(group, {.channel = 4, .segment_bytes = 4096, .timeout = milliseconds(20'000)});
    EXPECT_EQ(lane.segment().size(), 4096U);
    EXPECT_EQ(lane.begin_collective(), 1U);
    EXPECT_EQ(lane.begin_collective(), 2U);
    net::Stream& next = lane.link((group.rank() + 1) % 3);
    net::Stream& previous = lane.link((group.rank() + 2) % 3);
    say(next, group.rank());
    EXPECT_EQ(hear(previous), (group.rank() + 2) % 3);
    EXPECT_EQ(&lane.link((group.rank() + 1) % 3), &next);
    const Lane bare(group, {.channel = 5});
    EXPECT_TRUE(bare.segment().empty());
  });
}

TEST_P(GroupConformance, a_part_renumbers_its_ranks_and_has_channels_of_its_own) {
  run(4,
      [](Group& group) {
        const bool odd = group.rank() % 2 == 1;
        // Disjoint parts may share a number. The odd ranks are listed downwards.
        const auto part = subgroup_of(group, odd ? std::vector<int>{3, 1} : std::vector<int>{0, 2}, 7);
        EXPECT_EQ(part->size(), 2);
        EXPECT_EQ(part->rank(), odd ? (group.rank() == 3 ? 0 : 1) : group.rank() / 2);
        EXPECT_EQ(part->topology().local_size(), odd ? 1 : 2);
        const std::string name = part->topology().describe(part->rank());
        EXPECT_NE(name.find("rank " + std::to_string(group.rank()) + " "), std::string::npos) << name;
        const int peer_in_group = (group.rank() + 2) % 4;
        const auto here = group.open_link(peer_in_group, 5, soon());
        const auto there = part->open_link(1 - part->rank(), 5, soon());
        say(*here, 100 + group.rank());
        say(*there, 200 + group.rank());
        EXPECT_EQ(hear(*there), 200 + peer_in_group);
        EXPECT_EQ(hear(*here), 100 + peer_in_group);
        EXPECT_EQ(failure_of([&] { subgroup_of(*part, {0}, 1); }).code(), ErrorCode::kInvalidArgument);
      },
      {"a", "b", "a", "c"});
}

TEST_P(GroupConformance, a_part_shares_memory_among_its_ranks_of_a_host) {
  run(3, [](Group& group) {
    if (group.rank() == 1) return;  // Takes no part in it.
    const auto part = subgroup_of(group, {2, 0}, 1);
    const auto segment = part->share_segment(9, 4096, soon());
    auto* counter = reinterpret_cast<std::atomic<int>*>(segment->bytes().data());
    counter->fetch_add(1 + group.rank());
    const auto link = part->open_link(1 - part->rank(), 1, soon());
    say(*link, 0);
    hear(*link);
    EXPECT_EQ(counter->load(), 4);
  });
}

TEST_P(GroupConformance, who_leaves_a_part_is_missed_there_and_nowhere_else) {
  run(3, [](Group& group) {
    const auto part = subgroup_of(group, {0, 1, 2}, 1);
    const auto other = subgroup_of(group, {2, 1, 0}, 2);
    if (group.rank() == 1) {
      part->leave();
      EXPECT_EQ(failure_of([&] { part->open_link(0, 1, soon()); }).code(), ErrorCode::kShutDown);
    } else {
      const Error cause = part->cause_of_loss(1, Error(ErrorCode::kInternal, "nothing was heard of rank 1"));
      EXPECT_EQ(cause.code(), ErrorCode::kPeerLeft) << cause.what();
      EXPECT_TRUE(part->has_left(1));
      EXPECT_EQ(part->exit_count(), 1);
      if (group.rank() == 0) {
        EXPECT_EQ(failure_of([&] { part->open_link(1, 1, soon()); }).code(), ErrorCode::kPeerLeft);
      }
    }
    EXPECT_FALSE(group.has_left(1));
    EXPECT_FALSE(other->has_left(1));
    const auto link = other->open_link((other->rank() + 1) % 3, 1, soon());
    const auto link_back = other->open_link((other->rank() + 2) % 3, 1, soon());
    say(*link, 1);
    EXPECT_EQ(hear(*link_back), 1);
    say(*link_back, 2);  // Nobody leaves before all have heard.
    EXPECT_EQ(hear(*link), 2);
  });
}

TEST_P(GroupConformance, a_failure_of_a_part_is_the_groups) {
  run(3, [](Group& group) {
    if (group.rank() == 2) {
      subgroup_of(group, {2, 1}, 1)->abort(Error(ErrorCode::kMismatch, "rank 2 wants float32"));
    }
    net::wait_for(group.abort_signal().fd(), POLLIN, soon(), "the abort");
    EXPECT_STREQ(group.abort_signal().reason()->what(), "rank 2 wants float32");
  });
}

TEST_P(GroupConformance, ranks_that_make_no_part_are_refused) {
  run(2, [](Group& group) {
    const int rank = group.rank();
    for (const std::vector<int>& ranks : {std::vector<int>{1 - rank}, {rank, 2}, {rank, rank}, {-1, rank}, {}}) {
      EXPECT_EQ(failure_of([&] { subgroup_of(group, ranks, 1); }).code(), ErrorCode::kInvalidArgument);
    }
    EXPECT_EQ(failure_of([&] { subgroup_of(group, {rank}, 0); }).code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(failure_of([&] { subgroup_of(group, {rank}, kLastSubgroup + 1); }).code(), ErrorCode::kInvalidArgument);
  });
}

INSTANTIATE_TEST_SUITE_P(BackEnds, GroupConformance, all_back_ends(), name_of_back_end);

}  // namespace
}  // namespace gyre::group
