// A scrape that Prometheus refuses loses all metrics of a job, not one.
#include "gyre/metrics/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace gyre::metrics {
namespace {

TEST(Prometheus, has_a_heading_for_each_metric_and_the_names_as_they_were_logged) {
  metrics::Run run;
  run.series[{"train/loss \"a\\b\"", 0}] = {{1, 10, 0.75}, {2, 20, 0.5}};
  run.series[{"loss", 1}] = {{3, 30, std::numeric_limits<double>::quiet_NaN()}};
  run.series[{"loss", 2}] = {{3, 30, -std::numeric_limits<double>::infinity()}};
  run.series[{"gyre/sent_bytes", 0}] = {{2, 20, 4096}};
  run.series[{"gyre/sent_bytes", 1}] = {{2, 20, 1e15}};
  run.series[{"gyre/cpu_cores", 0}] = {{2, 20, 0.25}};
  EXPECT_EQ(prometheus_text(run), R"(# HELP gyre_cpu_cores Processor time that the rank's process uses, in cores.
# TYPE gyre_cpu_cores gauge
gyre_cpu_cores{rank="0"} 0.25
# HELP gyre_sent_bytes_total Bytes that the rank has sent to other hosts.
# TYPE gyre_sent_bytes_total counter
gyre_sent_bytes_total{rank="0"} 4096
gyre_sent_bytes_total{rank="1"} 1000000000000000
# HELP gyre_logged_value The latest value that the program has logged.
# TYPE gyre_logged_value gauge
gyre_logged_value{name="loss",rank="1"} NaN
gyre_logged_value{name="loss",rank="2"} -Inf
gyre_logged_value{name="train/loss \"a\\b\"",rank="0"} 0.5
# HELP gyre_logged_step The step of that value.
# TYPE gyre_logged_step gauge
gyre_logged_step{name="loss",rank="1"} 3
gyre_logged_step{name="loss",rank="2"} 3
gyre_logged_step{name="train/loss \"a\\b\"",rank="0"} 2
)");
  EXPECT_EQ(prometheus_text({}), "");
}

}  // namespace
}  // namespace gyre::metrics
