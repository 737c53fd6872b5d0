// Orders and reports come from the network and from disk: what goes in comes out, and nonsense is refused by name.
#include "gyre/jobs/orders/work_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gyre/base/error.h"
#include "gyre/jobs/orders/messages.h"
#include "gyre/jobs/orders/node_report.h"

namespace gyre::jobs::orders {
namespace {

using nlohmann::json;
using testing::HasSubstr;

WorkOrder an_order() {
  WorkOrder order;
  order.attempt = "a-1";
  order.attempt_number = 2;
  order.job_name = "job";
  order.cluster_name = "cluster";
  order.path_segment = "w/jobs/job/uuid";
  order.job.node_count = 2;
  order.job.std_out_err_path_prefix = "$AZ_BATCHAI_MOUNT_ROOT/x";
  order.job.toolkit = spec::CustomToolkitSettings{"true"};
  order.job.secrets = {{"TOKEN", {"hunter2", std::nullopt}}};
  order.cluster.vm_size = "STANDARD_D2";
  order.cluster.gyre.mounts = {{"x", "/x"}};
  order.nodes = {{"n0", "10.0.0.4", 4, 1}, {"n1", "fe80::1", 4, 1}};
  order.node = 1;
  order.shared_folder = "/shared";
  order.mount_root = "/mounts";
  order.jobs_root = "/jobs";
  order.key = std::string(64, 'a');
  return order;
}

std::string refusal_of(const json& text) {
  try {
    work_order_from_json(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    return error.what();
  }
  return "it was accepted";
}

TEST(WorkOrders, an_order_survives_the_way_with_its_secrets) {
  WorkOrder order = an_order();
  EXPECT_EQ(work_order_from_json(to_json(order)), order);
  order.nodes[0].devices = {{"GPU-5c9c1ba1", "MIG-1/2"}};
  order.nodes[1].devices.emplace();
  EXPECT_EQ(work_order_from_json(to_json(order)), order);
}

TEST(WorkOrders, names_and_paths_that_lead_elsewhere_are_refused) {
  const json order = to_json(an_order());
  for (const auto& [pointer, value] :
       std::vector<std::pair<const char*, json>>{{"/attempt", "../a"},
                                                 {"/job_name", ""},
                                                 {"/job_name", std::string(65, 'x')},
                                                 {"/path_segment", "/etc"},
                                                 {"/path_segment", "a/../.."},
                                                 {"/setup_path_suffix", ".."},
                                                 {"/nodes/0/id", "a/b"},
                                                 {"/nodes/0/address", "-oProxyCommand=x"},
                                                 {"/nodes/0/devices", "GPU-a"},
                                                 {"/nodes/0/devices", json::array({"GPU-a,GPU-b"})},
                                                 {"/nodes/0/devices", json::array({"GPU\n-a"})},
                                                 {"/nodes/0/devices", json::array({7})},
                                                 {"/node", 2},
                                                 {"/node", -1},
                                                 {"/nodes", json::array()},
                                                 {"/shared_folder", "relative"},
                                                 {"/mount_root", "/up/../and/away"},
                                                 {"/job_mount_root", "relative"},
                                                 {"/key", "short"},
                                                 {"/job", json::object()},
                                                 {"/cluster", 7}}) {
    json changed = order;
    changed[json::json_pointer(pointer)] = value;
    EXPECT_NE(refusal_of(changed), "it was accepted") << pointer << " " << value;
  }
  EXPECT_THAT(refusal_of(json::array()), HasSubstr("not a JSON object"));
}

TEST(WorkOrders, a_report_survives_the_way) {
  NodeReport report;
  report.attempt = "a-1";
  report.phase = Phase::kEnded;
  report.facts = NodeFacts{Mpi::kHydra, {2222, 2223}, 4711};
  report.record = ExitRecord{
      3, resources::ResourceError{"JobFailed", "it failed", {{"node", "n0"}}}, true, true, 5, 9, {"a process"}};
  report.log_folder = "/logs";
  report.outputs = {{"MODEL", "/out"}};
  report.notes = {"a note"};
  EXPECT_EQ(node_report_from_json(to_json(report)), report);
}

TEST(WorkOrders, a_report_of_an_end_without_a_record_is_refused) {
  NodeReport report;
  report.attempt = "a-1";
  report.phase = Phase::kEnded;
  EXPECT_THROW(node_report_from_json(to_json(report)), Error);
}

// From whoever knows the key, but perhaps from an older or a broken program.
TEST(WorkOrders, messages_of_nonsense_are_refused) {
  for (const char* text : {"", "[]", "{\"attempt\": 1}", "{\"attempt\": \"a b\"}", "null"}) {
    net::Message message;
    const auto bytes = as_bytes(text);
    message.payload.assign(bytes.begin(), bytes.end());
    EXPECT_THROW(attempt_from(message), Error) << text;
    EXPECT_THROW(registration_from(message), Error) << text;
    EXPECT_THROW(run_command_from(message), Error) << text;
  }
  net::Message deep;
  deep.payload.assign(1'000'000, std::byte{'['});
  EXPECT_THROW(report_from(deep), Error);
}

}  // namespace
}  // namespace gyre::jobs::orders
