// What a node's ranks measure must leave room for what they print.
#include "gyre/jobs/node/internal/kept_measurements.h"

#include <gtest/gtest.h>

#include "gyre/jobs/spec/timelines.h"

namespace gyre::jobs::node::internal {
namespace {

orders::WorkOrder order_of_two_nodes(std::uint64_t log_bytes, bool timeline) {
  orders::WorkOrder order;
  order.attempt_number = 3;
  order.node = 1;
  order.nodes.resize(2);
  order.log_bytes = log_bytes;
  if (timeline) spec::ask_for_timelines(order.job);
  return order;
}

TEST(KeptMeasurements, metrics_and_timelines_have_a_quarter_of_the_nodes_share_each) {
  const orders::WorkOrder order = order_of_two_nodes(8'000, true);
  EXPECT_EQ(share_of_logs(order), 4'000U);
  EXPECT_EQ(text_of(metrics_order(order, "/logs")), "1000:/logs/gyre-3-1.metrics");
  Variables variables;
  order_timelines(variables, order, "/logs");
  EXPECT_EQ(variables, (Variables{{"GYRE_JOB_TIMELINE", "1000:/logs/gyre-3-timeline-{rank}.json"}}));
  EXPECT_EQ(share_of_output(order), 3'000U);
}

TEST(KeptMeasurements, a_job_that_asks_for_no_timelines_has_its_share_for_its_output) {
  const orders::WorkOrder order = order_of_two_nodes(8'000, false);
  Variables variables;
  order_timelines(variables, order, "/logs");
  EXPECT_TRUE(variables.empty());
  EXPECT_EQ(share_of_output(order), 4'000U);
}

TEST(KeptMeasurements, without_a_limit_of_logs_output_has_none_and_timelines_have) {
  const orders::WorkOrder order = order_of_two_nodes(0, true);
  EXPECT_EQ(share_of_output(order), 0U);
  Variables variables;
  order_timelines(variables, order, "/logs");
  EXPECT_EQ(variables.at("GYRE_JOB_TIMELINE"), "536870912:/logs/gyre-3-timeline-{rank}.json");
}

}  // namespace
}  // namespace gyre::jobs::node::internal
