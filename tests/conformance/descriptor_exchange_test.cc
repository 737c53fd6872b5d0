// Ranks of a host hand each other open files: in the order of the ranks, over every back end, as often as they like.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/group/group.h"
#include "gyre/group/in_process.h"
#include "tests/conformance/back_ends.h"

namespace gyre::group {
namespace {

using DescriptorExchange = BackEndTest;

/// A memory file that says whose it is.
UniqueFd file_of(int rank) {
  UniqueFd file(::memfd_create("gyre-test", MFD_CLOEXEC));
  EXPECT_EQ(::pwrite(file.get(), &rank, sizeof(rank), 0), static_cast<ssize_t>(sizeof(rank)));
  return file;
}

int owner_of(const UniqueFd& file) {
  int rank = -1;
  EXPECT_EQ(::pread(file.get(), &rank, sizeof(rank), 0), static_cast<ssize_t>(sizeof(rank)));
  return rank;
}

TEST_P(DescriptorExchange, descriptors_reach_the_ranks_of_a_host_in_their_order_time_and_again) {
  run(5,
      [](Group& group) {
        const std::vector<int>& local_ranks = group.topology().local_ranks();
        for (int round = 0; round < 20; ++round) {
          const UniqueFd own = file_of(100 * round + group.rank());
          const std::vector<UniqueFd> received = group.exchange_descriptors(9, own.get(), soon());
          ASSERT_EQ(received.size(), local_ranks.size());
          for (std::size_t i = 0; i < received.size(); ++i) {
            if (local_ranks[i] == group.rank()) {
              EXPECT_FALSE(received[i]);
            } else {
              EXPECT_EQ(owner_of(received[i]), 100 * round + local_ranks[i]);
            }
          }
        }
      },
      {"a", "b", "a", "b", "a"});
}

TEST_P(DescriptorExchange, a_rank_that_waits_for_descriptors_learns_that_another_one_has_left) {
  run(2, [](Group& group) {
    if (group.rank() == 1) return;
    const UniqueFd own = file_of(group.rank());
    const Error error = failure_of([&] { group.exchange_descriptors(9, own.get(), soon()); });
    EXPECT_EQ(error.code(), ErrorCode::kPeerLeft) << error.what();
  });
}

TEST(DescriptorExchangeInProcess, a_rank_whose_time_is_up_takes_its_part_back) {
  run_in_process(2, [](Group& group) {
    const UniqueFd own = file_of(group.rank());
    if (group.rank() == 0) {
      const Error error =
          failure_of([&] { group.exchange_descriptors(9, own.get(), Deadline::after(std::chrono::milliseconds(20))); });
      EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
    }
    const auto link = group.open_link(1 - group.rank(), 1, soon());
    say(*link, 1);
    hear(*link);
    const std::vector<UniqueFd> received = group.exchange_descriptors(9, own.get(), soon());
    EXPECT_EQ(owner_of(received.at(1 - static_cast<std::size_t>(group.rank()))), 1 - group.rank());
  });
}

TEST_P(DescriptorExchange, a_part_hands_descriptors_around_in_its_own_order) {
  run(4, [](Group& group) {
    if (group.rank() == 1) return;  // Takes no part in it.
    const std::vector<int> ranks{3, 0, 2};
    const auto part = subgroup_of(group, ranks, 1);
    const UniqueFd own = file_of(group.rank());
    const std::vector<UniqueFd> received = part->exchange_descriptors(9, own.get(), soon());
    ASSERT_EQ(received.size(), ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == group.rank()) continue;
      EXPECT_EQ(owner_of(received[i]), ranks[i]);
    }
    const auto link = part->open_link((part->rank() + 1) % 3, 1, soon());
    const auto link_back = part->open_link((part->rank() + 2) % 3, 1, soon());
    say(*link, 1);
    hear(*link_back);
  });
}

INSTANTIATE_TEST_SUITE_P(BackEnds, DescriptorExchange, all_back_ends(), name_of_back_end);

}  // namespace
}  // namespace gyre::group
