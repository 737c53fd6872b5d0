// The rank that enters a round of the board last settles it with two stores. Stopped or killed between them, it must
// not keep the others waiting for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gyre/base/error.h"
#include "gyre/base/log.h"
#include "gyre/collectives/collectives.h"
#include "gyre/engine/internal/channels.h"
#include "gyre/engine/internal/open/board.h"
#include "gyre/group/in_process.h"

namespace gyre::engine::internal {
namespace {

using testing::HasSubstr;

/// Rank 1 of two, by hand: it can stop wherever it likes.
class OtherRank {
 public:
  explicit OtherRank(group::Group& group)
      : lane_(group, {kBoardChannel, collectives::segment_bytes_for(2, 0), std::chrono::seconds(30)}),
        memory_(group.share_segment(kBoardMemoryChannel, Board::memory_bytes(2),
                                    Deadline::after(std::chrono::seconds(30)))),
        state_(*reinterpret_cast<std::atomic<std::uint64_t>*>(memory_->bytes().data())) {}

  /// Enters a round as the last one, and never settles it.
  void hold(std::uint64_t entered_before) {
    constexpr std::uint64_t kEntered = 0xFFFF;
    for (;;) {
      std::uint64_t state = state_.load();
      if ((state & kEntered) == entered_before && state_.compare_exchange_weak(state, (state & ~kEntered) | 2)) return;
      std::this_thread::yield();
    }
  }

 private:
  group::Lane lane_;
  std::shared_ptr<net::Segment> memory_;
  std::atomic<std::uint64_t>& state_;
};

/// How rank 0's call ends while the other rank holds a round, since before rank 0 entered it or after.
Error failure_of_rank_zero(std::uint64_t entered_before, std::chrono::milliseconds limit,
                           const std::function<void(group::Group&)>& meanwhile) {
  Error failure(ErrorCode::kInvalidArgument, "none");
  std::atomic<bool> has_board = false;  // Rank 0; before, an abort would end its joining.
  group::run_in_process(2, [&](group::Group& group) {
    if (group.rank() == 1) {
      OtherRank other(group);
      other.hold(entered_before);
      has_board.wait(false);
      meanwhile(group);
      while (!group.abort_signal().triggered()) std::this_thread::yield();
      return;
    }
    const TimelineRows timeline(std::make_shared<Timeline>(null_logger()));
    Board board(group, timeline, null_logger(), limit);
    has_board = true;
    has_board.notify_all();
    Request request;
    request.name = "small";
    request.signature = {.kind = OperationKind::kBarrier};
    for (;;) {  // Until the other rank has come: a round that nobody else enters is called off.
      try {
        if (board.try_run(request)) throw Error(ErrorCode::kInvalidArgument, "nobody has settled the round");
      } catch (const Error& error) {
        failure = error;
        return;
      }
    }
  });
  return failure;
}

TEST(HeldRoundTest, a_holder_that_stops_is_waited_for_as_long_as_a_collective_may_take) {
  for (const std::uint64_t entered_before : {0U, 1U}) {
    SCOPED_TRACE(entered_before);
    const Error failure = failure_of_rank_zero(entered_before, std::chrono::milliseconds(200), [](group::Group&) {});
    EXPECT_EQ(failure.code(), ErrorCode::kTimeout);
    EXPECT_THAT(failure.what(), HasSubstr("barrier 'small': waited longer than the limit of a collective for a rank"));
  }
}

TEST(HeldRoundTest, an_abort_ends_the_wait_for_a_holder) {
  for (const std::uint64_t entered_before : {0U, 1U}) {
    SCOPED_TRACE(entered_before);
    const Error failure = failure_of_rank_zero(entered_before, std::chrono::milliseconds(0), [](group::Group& group) {
      group.abort(Error(ErrorCode::kAborted, "it was stopped"));
    });
    EXPECT_EQ(failure.code(), ErrorCode::kAborted);
    EXPECT_THAT(failure.what(), HasSubstr("it was stopped"));
  }
}

}  // namespace
}  // namespace gyre::engine::internal
