#include "gyre/jobs/node/internal/attempt_ends.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "gyre/base/error.h"

namespace gyre::jobs::node::internal {

using orders::kNoRoom;
using orders::WorkOrder;

namespace {

WorkOrder order_of_one_node() {
  WorkOrder order;
  order.nodes.push_back({.id = "node-0", .address = "127.0.0.1"});
  return order;
}

std::string reason_of(const std::exception& error, bool begun) {
  const AttemptEnds end = internal_failure(order_of_one_node(), error, begun);
  EXPECT_EQ(end.error->code, resources::error_code::kInternal);
  EXPECT_EQ(end.error->message, error.what());
  const auto reason = end.error->details.find("reason");
  return reason == end.error->details.end() ? "" : reason->second;
}

TEST(AttemptEnds, a_full_disk_before_the_processes_begin_is_no_room) {
  const std::error_code full(ENOSPC, std::generic_category());
  EXPECT_EQ(reason_of(system_error("cannot write /x", ENOSPC), false), kNoRoom);
  EXPECT_EQ(reason_of(system_error("cannot write /x", EDQUOT), false), kNoRoom);
  EXPECT_EQ(reason_of(std::system_error(full, "cannot write"), false), kNoRoom);
  EXPECT_EQ(reason_of(std::filesystem::filesystem_error("cannot copy", full), false), kNoRoom);
  EXPECT_EQ(reason_of(std::system_error(EDQUOT, std::system_category(), "cannot write"), false), kNoRoom);
}

TEST(AttemptEnds, a_full_disk_later_and_other_failures_are_not) {
  EXPECT_EQ(reason_of(system_error("cannot write /x", ENOSPC), true), "");
  EXPECT_EQ(reason_of(system_error("cannot write /x", EACCES), false), "");
  EXPECT_EQ(reason_of(std::system_error(EIO, std::generic_category(), "cannot write"), false), "");
  EXPECT_EQ(reason_of(std::runtime_error("No space left on device"), false), "");
}

}  // namespace
}  // namespace gyre::jobs::node::internal
