// A node that cannot carry a stream says so to its user at once, in one sentence.
#include "gyre/jobs/hub/internal/stream_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace gyre::jobs::hub::internal {
namespace {

using testing::HasSubstr;

TEST(StreamTable, a_node_program_of_an_earlier_version_is_asked_for_nothing_that_it_does_not_know) {
  StreamTable table;
  const auto why = [&](StreamTable::Carries carries, const orders::StreamRequest& request) {
    const auto stream = std::make_shared<NodeStream>([](std::uint16_t, const Bytes&) {});
    table.came("n0", nullptr, carries);
    table.open(1, "n0", request, stream);
    return stream->read(SIZE_MAX).bytes;
  };
  const orders::StreamRequest port{.attempt = "a", .port = 80};
  const orders::StreamRequest command{.attempt = "a", .command = orders::CommandRequest{}};
  EXPECT_THAT(why({}, port), HasSubstr("the node program of n0 is of an earlier version of Gyre"));
  EXPECT_THAT(why({.streams = true}, command), HasSubstr("the node program of n0 is of an earlier version of Gyre"));
}

}  // namespace
}  // namespace gyre::jobs::hub::internal
