// A job's account can say anything in the place of its attempt's process: only what a job may change is believed.
#include "gyre/jobs/node/internal/saved_attempt.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gyre/base/error.h"
#include "gyre/jobs/node/launch_plan.h"

namespace gyre::jobs::node::internal {

using orders::NodeFacts;
using orders::NodeReport;

namespace {

using Json = nlohmann::json;

SavedAttempt preparing() {
  SavedAttempt state;
  state.order.nodes = {{"n0", "10.0.0.4", 1, 0}, {"n1", "10.0.0.5", 1, 0}};
  state.order.job.toolkit = spec::CustomToolkitSettings{"true"};
  state.step = Step::kPreparing;
  state.started_us = 1'000;
  state.boot = "boot";
  state.memory = {"before"};
  state.notes = {"first"};
  return state;
}

NodeFacts facts_of(const SavedAttempt& state) {
  NodeFacts facts;
  facts.ports.resize(static_cast<std::size_t>(ports_needed(state.order, state.order.node)));
  for (std::size_t i = 0; i < facts.ports.size(); ++i) facts.ports[i] = 2222 + static_cast<int>(i);
  return facts;
}

SavedAttempt prepared() {
  SavedAttempt state = preparing();
  state.facts = facts_of(state);
  state.step = Step::kPrepared;
  return state;
}

Json stopped(const Json& record_changes = Json::object()) {
  SavedAttempt state = preparing();
  state.step = Step::kStopped;
  state.record.emplace();
  Json json = progress_of(state);
  json["record"].update(record_changes);
  return json;
}

void expect_refused(const SavedAttempt& state, const Json& progress, const char* why) {
  EXPECT_THROW(with_progress(state, progress), Error) << why;
}

TEST(Progress, that_goes_on_is_taken_over_and_nothing_else_is) {
  Json progress = progress_of(prepared());
  progress["notes"].push_back("second");
  progress["log_lengths"]["/share/stdout.txt"] = 7U;
  // What it has no word in.
  progress["order"] = {{"job_name", "other"}};
  progress["boot"] = "other";
  progress["memory"] = {"all"};
  progress["started_us"] = 0;
  const SavedAttempt state = with_progress(preparing(), progress);
  EXPECT_EQ(state.step, Step::kPrepared);
  EXPECT_EQ(state.facts, prepared().facts);
  EXPECT_EQ(state.notes, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(state.log_lengths.at("/share/stdout.txt"), 7U);
  EXPECT_EQ(state.order, preparing().order);
  EXPECT_EQ(state.boot, "boot");
  EXPECT_EQ(state.memory, std::vector<std::string>{"before"});
  EXPECT_EQ(state.started_us, 1'000);
}

TEST(Progress, the_node_programs_clock_tells_when_an_attempt_began_and_ended) {
  SavedAttempt state = with_progress(preparing(), stopped({{"started_us", 5}, {"ended_us", 5}, {"exit_code", 3}}));
  ASSERT_TRUE(state.record);
  EXPECT_EQ(state.record->exit_code, 3);
  EXPECT_EQ(state.record->started_us, 1'000);
  const std::int64_t ended_us = state.record->ended_us;
  EXPECT_GT(ended_us, 1'000);
  EXPECT_EQ(with_progress(state, stopped()).record->ended_us, ended_us);
}

TEST(Progress, that_would_mislead_others_is_refused) {
  expect_refused(prepared(), progress_of(preparing()), "a step back");
  expect_refused(with_progress(preparing(), stopped()), progress_of(prepared()), "life after the end");
  Json other = progress_of(prepared());
  other["facts"]["ports"].push_back(9);
  expect_refused(preparing(), other, "more ports than the job needs");
  other["facts"]["ports"] = Json::array();
  expect_refused(preparing(), other, "fewer ports: other nodes would look for them");
  other = progress_of(prepared());
  other["facts"]["shell_port"] = 7;
  expect_refused(prepared(), other, "other facts than the nodes have planned with");
  other["facts"] = nullptr;
  expect_refused(preparing(), other, "prepared without facts");
  other = progress_of(preparing());
  other["record"] = stopped()["record"];
  expect_refused(preparing(), other, "a record of what runs");
  other = progress_of(preparing());
  other["notes"] = {"another"};
  expect_refused(preparing(), other, "notes taken back");
  other["notes"] = Json(std::vector<std::string>(NodeReport::kMostNotes + 1, "first"));
  expect_refused(preparing(), other, "too many notes");
  other["notes"] = {"first", std::string(1 << 20, 'x')};
  expect_refused(preparing(), other, "a note that fills the catalog");
  expect_refused(preparing(), stopped({{"error", {{"code", "Cosmic"}, {"message", ""}, {"details", Json::object()}}}}),
                 "an error that there is not");
  expect_refused(preparing(), Json::array(), "no object");
  expect_refused(preparing(), {{"step", "running"}}, "without the rest");
}

TEST(NodeStates, are_read_as_they_were_written) {
  SavedAttempt state = prepared();
  state.order.attempt = "a";
  state.order.job_name = state.order.cluster_name = "name";
  state.order.shared_folder = "/shared";
  state.order.key = std::string(64, 'a');
  state.order.cluster.vm_size = "local";
  state.order.job.cluster_id = "c";
  state.order.job.std_out_err_path_prefix = "/share";
  state.log_lengths["/log"] = 3;
  const SavedAttempt read = saved_attempt_from_json(to_json(state), "a state");
  EXPECT_EQ(to_json(read), to_json(state));
}

}  // namespace
}  // namespace gyre::jobs::node::internal
