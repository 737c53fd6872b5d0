// Who waits for a job relies on hearing of every change once, also across a lost connection, and of its end.
#include <thread>

#include "gyre/jobs/http/interface_test_support.h"

namespace gyre::jobs::http {
namespace {

using net::http::ServerEvent;
using nlohmann::json;

class Events : public InterfaceTest {
 protected:
  void SetUp() override {
    InterfaceTest::SetUp();
    as_ada(Method::kPut, kJob, kJobFile);
  }
  void change(resources::ExecutionState state) { service_->set_state({"w", "e", "j"}, state); }
  net::http::Target target() const { return net::http::parse_target(std::string(kJob) + "/events"); }
};

TEST_F(Events, of_a_job_stream_until_it_has_finished) {
  net::http::Client ada = client("ada-token");
  change(resources::ExecutionState::kRunning);
  std::vector<std::string> states;
  ada.events(target(), "", [&](const ServerEvent& event) {
    EXPECT_EQ(event.name, "job");
    states.push_back(json::parse(event.data)["to"]);
    if (states.size() == 1)
      change(resources::ExecutionState::kSucceeded);  // It hears of this because the service wakes it.
    return true;
  });
  EXPECT_EQ(states, (std::vector<std::string>{"running", "succeeded"}));
}

TEST_F(Events, go_on_after_the_last_one_that_a_client_has) {
  net::http::Client ada = client("ada-token");
  for (int i = 0; i < 200; ++i) change(resources::ExecutionState::kRunning);
  change(resources::ExecutionState::kSucceeded);
  std::vector<std::string> ids;
  ada.events(target(), "150", [&](const ServerEvent& event) {
    ids.push_back(event.id);
    return true;
  });
  ASSERT_EQ(ids.size(), 51U);
  EXPECT_EQ(ids.front(), "151");
  EXPECT_EQ(ids.back(), "201");
  // A client that has them all hears of the end at once.
  ada.events(target(), "201", [&](const ServerEvent&) {
    ADD_FAILURE() << "an event came twice";
    return true;
  });
}

TEST_F(Events, of_a_deleted_job_end) {
  net::http::Client ada = client("ada-token");
  change(resources::ExecutionState::kRunning);
  int count = 0;
  ada.events(target(), "", [&](const ServerEvent&) {
    ++count;
    service_->delete_job({"w", "e", "j"});
    return true;
  });
  EXPECT_EQ(count, 1);
}

TEST_F(Events, are_a_list_as_well) {
  for (int i = 0; i < 3; ++i) change(resources::ExecutionState::kRunning);
  const json first = json::parse(as_ada(Method::kGet, "/workspaces/w/events?maxresults=2").body);
  ASSERT_EQ(first["value"].size(), 2U);
  EXPECT_EQ(first["value"][0]["sequence"], 1);
  EXPECT_EQ(first["value"][0]["time"], "1970-01-01T00:00:01.000000Z");
  const json rest = json::parse(as_ada(Method::kGet, first["nextLink"].get<std::string>()).body);
  EXPECT_EQ(rest["value"].size(), 1U);
  EXPECT_TRUE(rest["nextLink"].is_null());
  EXPECT_EQ(as_ada(Method::kGet, "/workspaces/w/events?after=x").status, 400);
  EXPECT_EQ(as_ada(Method::kGet, "/workspaces/w/events", {}, {{"Last-Event-ID", "-1"}}).status, 400);
  EXPECT_EQ(as_ada(Method::kGet, "/workspaces/w/experiments/e/jobs/none/events").status, 404);
}

}  // namespace
}  // namespace gyre::jobs::http
