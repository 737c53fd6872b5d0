// Why: a rank that fails must not leave the others waiting; they learn the reason at once, wherever they wait.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <latch>
#include <optional>
#include <thread>

#include "gyre/collectives/internal/links/exchange.h"
#include "gyre/collectives/internal/test_support.h"
#include "gyre/group/in_process.h"
#include "gyre/net/frame.h"
#include "gyre/net/socket.h"

namespace gyre::collectives {
namespace {

using std::chrono::milliseconds;
using testing::Arrangement;

/// What rank 0 of 3 gets when it waits in an allreduce that the others do not join.
struct Outcome {
  std::optional<Error> error;
  milliseconds waited{0};
};

group::LaneOptions options_for(const Arrangement& arrangement, const group::Group& group, milliseconds timeout) {
  group::LaneOptions options;
  options.channel = 7;
  options.timeout = timeout;
  if (arrangement.segment) options.segment_bytes = segment_bytes_for(group.topology().local_size(), 0);
  return options;
}

/// Runs three ranks that make one allreduce together; then ranks 0 and 1 begin another one, and rank 2 does
/// `instead`, which is handed a latch that opens when both others have given up. Returns what rank 0 got.
Outcome run_collective(const Arrangement& arrangement, std::size_t bytes, milliseconds timeout,
                       const std::function<void(group::Group&, std::latch&)>& instead) {
  Outcome outcome;
  std::latch second_begins(3);
  std::latch given_up(2);
  const auto body = [&](group::Group& group) {
    group::Lane lane(group, options_for(arrangement, group, timeout));
    Bytes buffer(bytes);
    allreduce(lane, buffer, {});
    second_begins.arrive_and_wait();
    if (group.rank() == 2) return instead(group, given_up);
    const auto start = SteadyClock::now();
    try {
      allreduce(lane, buffer, {});
      ADD_FAILURE() << "the allreduce ended without rank 2";
    } catch (const Error& error) {
      if (group.rank() == 0) {
        outcome = {error, std::chrono::duration_cast<milliseconds>(SteadyClock::now() - start)};
      }
    }
    given_up.count_down();
  };
  group::run_in_process(3, body, arrangement.host_ids);
  return outcome;
}

constexpr std::size_t kSizes[] = {4, 3 << 20};

TEST(CollectivesFailure, an_abort_wakes_those_who_wait_within_100_ms) {
  for (const Arrangement& arrangement : testing::arrangements(3)) {
    for (const std::size_t bytes : kSizes) {
      // The best of some attempts: on a machine with much else to do a thread may wait that long for a core.
      milliseconds best = milliseconds::max();
      for (int attempt = 0; attempt < 5 && best >= milliseconds(100); ++attempt) {
        SteadyClock::time_point aborted;
        const Outcome outcome =
            run_collective(arrangement, bytes, milliseconds(0), [&](group::Group& group, std::latch& both) {
              std::this_thread::sleep_for(milliseconds(60));  // Until the others are fast asleep: what is tested here.
              aborted = SteadyClock::now();
              group.abort({ErrorCode::kAborted, "rank 2 cannot read its data"});
              both.wait();
            });
        best = std::min(best, std::chrono::duration_cast<milliseconds>(SteadyClock::now() - aborted));
        ASSERT_TRUE(outcome.error) << arrangement.name;
        EXPECT_EQ(outcome.error->code(), ErrorCode::kAborted) << outcome.error->what();
        EXPECT_NE(std::string(outcome.error->what()).find("cannot read its data"), std::string::npos);
      }
      EXPECT_LT(best, milliseconds(100)) << arrangement.name << ", " << bytes << " bytes";
    }
  }
}

TEST(CollectivesFailure, an_abort_ends_what_only_moves_data_too) {
  using Move = std::function<void(group::Lane&, Bytes&, Bytes&)>;
  const Move moves[] = {[](group::Lane& lane, Bytes& own, Bytes&) { broadcast(lane, own, 2); },
                        [](group::Lane& lane, Bytes& own, Bytes& all) {
                          allgather(lane, own, std::vector<std::size_t>(3, own.size()), all);
                        },
                        [](group::Lane& lane, Bytes& own, Bytes& all) {
                          const std::vector<std::size_t> sizes(3, own.size());
                          const Bytes sent(all.size());
                          all_to_all(lane, sent, sizes, all, sizes);
                        }};
  for (const Arrangement& arrangement : testing::arrangements(3)) {
    for (const Move& move : moves) {
      std::latch given_up(2);
      const auto body = [&](group::Group& group) {
        group::Lane lane(group, options_for(arrangement, group, milliseconds(0)));
        Bytes own(1 << 20);
        Bytes all(3 << 20);
        if (group.rank() == 2) {
          move(lane, own, all);
          group.abort({ErrorCode::kAborted, "rank 2 cannot read its data"});
          return given_up.wait();
        }
        try {
          move(lane, own, all);  // Which the abort may end too.
          move(lane, own, all);
          ADD_FAILURE() << "it ended without rank 2; " << arrangement.name;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.what();
        }
        given_up.count_down();
      };
      group::run_in_process(3, body, arrangement.host_ids);
    }
  }
}

TEST(CollectivesFailure, a_deadline_ends_the_wait_and_names_who_is_missing) {
  // Long enough to open links on a loaded machine.
  constexpr milliseconds kTimeout{400};
  for (const Arrangement& arrangement : testing::arrangements(3)) {
    for (const std::size_t bytes : kSizes) {
      const Outcome outcome =
          run_collective(arrangement, bytes, kTimeout, [](group::Group&, std::latch& given_up) { given_up.wait(); });
      ASSERT_TRUE(outcome.error) << arrangement.name;
      EXPECT_EQ(outcome.error->code(), ErrorCode::kTimeout) << outcome.error->what();
      EXPECT_GE(outcome.waited, kTimeout - milliseconds(5)) << arrangement.name;
      const std::string message = outcome.error->what();
      if (arrangement.segment && arrangement.host_ids[0] == arrangement.host_ids[2]) {
        EXPECT_NE(message.find("rank 2"), std::string::npos) << message;
        EXPECT_EQ(message.find("rank 1"), std::string::npos) << message;
      } else {
        // Over links rank 0 knows only that the peer of its present step is silent, who may itself be waiting.
        EXPECT_NE(message.find("rank"), std::string::npos) << message;
      }
    }
  }
}

TEST(CollectivesFailure, a_rank_that_has_left_is_not_waited_for) {
  for (const Arrangement& arrangement : testing::arrangements(3)) {
    for (const std::size_t bytes : kSizes) {
      const Outcome outcome =
          run_collective(arrangement, bytes, milliseconds(0), [](group::Group& group, std::latch&) { group.leave(); });
      ASSERT_TRUE(outcome.error) << arrangement.name;
      EXPECT_EQ(outcome.error->code(), ErrorCode::kPeerLeft) << outcome.error->what();
      EXPECT_NE(std::string(outcome.error->what()).find("left"), std::string::npos) << outcome.error->what();
    }
  }
}

TEST(CollectivesFailure, a_dead_rank_on_another_host_fails_everybody_with_one_reason) {
  for (const std::size_t bytes : kSizes) {
    std::vector<std::string> reasons(4);
    const auto body = [&](group::Group& group) {
      group::Lane lane(group, options_for({"two by two", {}}, group, milliseconds(0)));
      Bytes buffer(bytes);
      try {
        // Others may still be in the first one when it fails.
        allreduce(lane, buffer, {});
        // Its links close before anybody is told why.
        if (group.rank() == 3) throw Error(ErrorCode::kInternal, "rank 3 has lost its disk");
        allreduce(lane, buffer, {});
        ADD_FAILURE() << "the allreduce ended without rank 3";
      } catch (const Error& error) {
        reasons[static_cast<std::size_t>(group.rank())] = error.what();
        throw;
      }
    };
    EXPECT_THROW(group::run_in_process(4, body, {"a", "a", "b", "b"}), Error);
    for (const std::size_t rank : {0, 1, 2}) {
      EXPECT_NE(reasons[rank].find("rank 3 has lost its disk"), std::string::npos) << rank << ": " << reasons[rank];
    }
  }
}

/// Sends `frame` to rank 0 in place of what an allreduce over links would send; returns what rank 0 says to it.
Error answer_to(const std::function<void(net::Stream&)>& send) {
  std::optional<Error> answer;
  const auto body = [&](group::Group& group) {
    group::Lane lane(group, {.channel = 7, .timeout = milliseconds(2000)});
    if (group.rank() == 1) {
      send(lane.link(0));
      return net::wait_for(group.abort_signal().fd(), POLLIN, Deadline::after(milliseconds(20'000)), "the abort");
    }
    Bytes buffer(64);
    try {
      allreduce(lane, buffer, {});
    } catch (const Error& error) {
      answer = error;
      throw;
    }
  };
  EXPECT_THROW(group::run_in_process(2, body, testing::a_host_each(2).host_ids), Error);
  return answer.value_or(Error(ErrorCode::kInternal, "no answer"));
}

void send_frame(net::Stream& stream, const net::FrameHeader& header, std::span<const std::byte> payload) {
  write_exactly(stream, net::encode_frame_header(header), Deadline::after(std::chrono::seconds(20)));
  write_exactly(stream, payload, Deadline::after(std::chrono::seconds(20)));
}

TEST(CollectivesFailure, a_damaged_frame_is_found_and_its_sender_named) {
  const Bytes payload(64, std::byte{3});
  const Error answer = answer_to([&](net::Stream& stream) {
    send_frame(stream, {.payload_bytes = 64, .channel = 7, .collective = 1, .checksum = 12345}, payload);
  });
  EXPECT_EQ(answer.code(), ErrorCode::kCorruptData) << answer.what();
  EXPECT_NE(std::string(answer.what()).find("rank 1"), std::string::npos) << answer.what();
}

TEST(CollectivesFailure, a_frame_of_another_place_is_a_protocol_error_that_names_its_sender) {
  const Bytes payload(64, std::byte{3});
  const net::FrameHeader wrong[] = {
      {.payload_bytes = 64, .channel = 8, .collective = 1},
      {.payload_bytes = 64, .channel = 7, .collective = 2},
      {.payload_bytes = 64, .channel = 7, .collective = 1, .step = 1},
      {.payload_bytes = 64, .channel = 7, .collective = 1, .piece = 1},
      {.payload_bytes = 60, .channel = 7, .collective = 1},
      {.payload_bytes = 1 << 20, .channel = 7, .collective = 1},
  };
  for (const net::FrameHeader& header : wrong) {
    const Error answer = answer_to([&](net::Stream& stream) { send_frame(stream, header, payload); });
    EXPECT_EQ(answer.code(), ErrorCode::kProtocol) << answer.what();
    EXPECT_NE(std::string(answer.what()).find("rank 1"), std::string::npos) << answer.what();
  }
}

TEST(CollectivesFailure, garbage_on_a_link_is_a_protocol_error) {
  const Error answer = answer_to([](net::Stream& stream) {
    const Bytes garbage(200, std::byte{0x5a});
    write_exactly(stream, garbage, Deadline::after(std::chrono::seconds(20)));
  });
  EXPECT_EQ(answer.code(), ErrorCode::kProtocol) << answer.what();
  EXPECT_NE(std::string(answer.what()).find("rank 1"), std::string::npos) << answer.what();
}

}  // namespace
}  // namespace gyre::collectives
