// Servers listen on every address of a machine, so jobs there must not have the same ports, whoever runs them.
#include "gyre/jobs/node/internal/node_probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"

namespace gyre::jobs::node::internal {
namespace {

TEST(node_probe, jobs_of_one_machine_have_different_ports_as_long_as_they_run) {
  std::optional<PortLease> first(std::in_place, "127.0.0.2", 3);
  PortLease of_the_same_node("127.0.0.2", 3);
  const std::vector<int> ports = first->ports();
  first->release();  // Its processes begin, and have not asked for their ports yet.
  PortLease of_another_node("127.0.0.3", 3);
  std::set<int> all;
  for (const auto* lease : {&*first, &of_the_same_node, &of_another_node})
    all.insert(lease->ports().begin(), lease->ports().end());
  EXPECT_EQ(all.size(), 9U);
  EXPECT_GE(*all.begin(), 2222);
  first.reset();
  // Where tests of other jobs run beside this one, they may have it for a while.
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (PortLease("127.0.0.4", 1).ports().front() > ports.front() && !deadline.passed())
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(deadline.passed());
}

TEST(node_probe, an_address_of_another_host_is_refused) {
  EXPECT_THROW(PortLease("192.0.2.1", 1), Error);
  EXPECT_THROW(PortLease("no.such.host.invalid", 1), Error);
}

}  // namespace
}  // namespace gyre::jobs::node::internal
