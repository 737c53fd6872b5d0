// What clients of Batch AI's REST know must be in its place: ids, states, times, lists, errors.
#include "gyre/jobs/http/interface_test_support.h"
#include "gyre/jobs/spec/parse.h"

namespace gyre::jobs::http {
namespace {

using net::http::Method;
using nlohmann::json;

class Resources : public InterfaceTest {};

TEST_F(Resources, a_job_has_the_form_of_batch_ai) {
  const Answer created = as_ada(Method::kPut, kJob, kJobFile);
  ASSERT_EQ(created.status, 201) << created.body;
  const json job = json::parse(as_ada(Method::kGet, kJob).body);
  EXPECT_EQ(job["id"], kJob);
  EXPECT_EQ(job["name"], "j");
  EXPECT_EQ(job["type"], "Microsoft.BatchAI/workspaces/experiments/jobs");
  const json& properties = job["properties"];
  EXPECT_EQ(properties["nodeCount"], 2);
  EXPECT_EQ(properties["toolType"], "custom");
  EXPECT_EQ(properties["executionState"], "queued");
  EXPECT_EQ(properties["provisioningState"], "succeeded");
  EXPECT_EQ(properties["creationTime"], "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(properties["constraints"]["maxWallClockTime"], "P7D");
  EXPECT_TRUE(properties["executionInfo"]["exitCode"].is_null());
  EXPECT_EQ(properties["customToolkitSettings"]["commandLine"], "echo hello");
}

TEST_F(Resources, secrets_reach_the_service_and_never_come_back) {
  const Answer created = as_ada(Method::kPut, kJob, kJobFile);
  EXPECT_EQ(service_->last_submission().spec.secrets.at(0).value.text, "do not tell");
  for (const Answer& answer : {created, as_ada(Method::kGet, kJob), as_ada(Method::kGet, "/workspaces/w/jobs")}) {
    EXPECT_EQ(answer.body.find("do not tell"), std::string::npos);
    EXPECT_NE(answer.body.find("\"KEY\""), std::string::npos);
  }
}

TEST_F(Resources, a_job_submitted_again_is_the_same_job_or_a_conflict) {
  EXPECT_EQ(as_ada(Method::kPut, kJob, kJobFile).status, 201);
  EXPECT_EQ(as_ada(Method::kPut, kJob, kJobFile).status, 200);
  std::string other = kJobFile;
  other.replace(other.find("hello"), 5, "bye");
  const Answer conflict = as_ada(Method::kPut, kJob, other);
  EXPECT_EQ(conflict.status, 409);
  EXPECT_EQ(code_of(conflict), "JobExists");
}

TEST_F(Resources, a_wrong_job_hears_of_every_problem_with_its_place) {
  const Answer answer = as_ada(Method::kPut, kJob, R"({"properties": {"nodeCount": 0, "cluster": {"id": "c"},
      "stdOutErrPathPrefix": "/x", "customToolkitSettings": {}}})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(code_of(answer), "InvalidJob");
  const json error = json::parse(answer.body)["error"];
  EXPECT_TRUE(error["target"].get<std::string>().starts_with("/properties/")) << error;
  EXPECT_GE(error["details"].size(), 2U);
  EXPECT_EQ(as_ada(Method::kPut, kJob, "{").status, 400);
  EXPECT_EQ(as_ada(Method::kPut, kJob, std::string(100'000, '[')).status, 400);
  EXPECT_EQ(as_ada(Method::kPut, kJob, std::string(spec::kMostFileBytes + 1, ' ')).status, 413);
}

TEST_F(Resources, names_follow_batch_ais_rule) {
  const std::string longest(64, 'x');
  const std::string jobs = "/workspaces/w/experiments/e/jobs/";
  EXPECT_EQ(as_ada(Method::kPut, jobs + longest, kJobFile).status, 201);
  for (const std::string& name :
       {longest + "x", std::string("a%20b"), std::string("a.b"), std::string("%C3%A9"), std::string("a%3Bb")}) {
    const Answer answer = as_ada(Method::kPut, jobs + name, kJobFile);
    EXPECT_EQ(answer.status, 400) << name;
    EXPECT_EQ(code_of(answer), "InvalidName");
  }
}

TEST_F(Resources, a_cluster_is_named_by_itself_or_by_any_form_of_its_id) {
  const std::vector<std::pair<std::string, int>> cases{
      {"c", 201},
      {"/workspaces/w/clusters/c", 201},
      {"/subscriptions/s/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/clusters/c", 201},
      {"/subscriptions/s/resourceGroups/g/providers/Microsoft.BatchAI/clusters/c", 201},
      {"/Workspaces/w/Clusters/c", 201},
      {"/workspaces/w/clusters/c/nodes", 400},
      {"/workspaces/w", 400},
      {"a b", 400},
      {"../c", 400}};
  int number = 0;
  for (const auto& [id, status] : cases) {
    json job = json::parse(kJobFile);
    job["properties"]["cluster"]["id"] = id;
    const std::string path = "/workspaces/w/experiments/e/jobs/j" + std::to_string(++number);
    EXPECT_EQ(as_ada(Method::kPut, path, job.dump()).status, status) << id;
    if (status != 201) continue;
    EXPECT_EQ(service_->last_submission().cluster.cluster, "c") << id;
  }
}

// What the page shows of a cluster over time.
TEST_F(Resources, a_cluster_has_its_use_over_time) {
  ASSERT_EQ(as_root(Method::kPut, "/workspaces/w/clusters/c", kClusterFile).status, 201);
  const json use = json::parse(as_ada(Method::kGet, "/workspaces/w/clusters/c/use?hours=2").body);
  EXPECT_EQ(use["begin"], "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(use["partSeconds"], 3600);
  EXPECT_EQ(use["running"], (json{1, 2}));
  EXPECT_EQ(use["waiting"], (json{0, 3}));
  EXPECT_EQ(as_ada(Method::kGet, "/workspaces/w/clusters/c/use?hours=0").status, 400);
  EXPECT_EQ(as_ada(Method::kGet, "/workspaces/w/clusters/c/use?hours=169").status, 400);
}

TEST_F(Resources, a_cluster_comes_back_and_changes_its_scale_alone) {
  const std::string path = "/workspaces/w/clusters/c";
  EXPECT_EQ(as_root(Method::kPut, path, kClusterFile).status, 201);
  const json cluster = json::parse(as_ada(Method::kGet, path).body);
  EXPECT_EQ(cluster["properties"]["vmSize"], "STANDARD_D1");
  EXPECT_EQ(cluster["properties"]["allocationState"], "steady");
  EXPECT_EQ(cluster["properties"]["nodeStateCounts"]["idleNodeCount"], 0);
  const std::string scale = R"({"properties": {"scaleSettings":
      {"manual": {"targetNodeCount": "5", "nodeDeallocationOption": "WaitForJobCompletion"}}}})";
  EXPECT_EQ(as_root(Method::kPatch, path, scale).status, 200);
  EXPECT_EQ(std::get<spec::ManualScale>(service_->last_scale()),
            (spec::ManualScale{5, spec::NodeDeallocationOption::kWaitForJobCompletion}));
  for (const char* wrong :
       {"{}", R"({"properties": {}})", R"({"properties": {"vmSize": "x"}})",
        R"({"properties": {"scaleSettings": {"manual": {"targetNodeCount": -1}}}})",
        R"({"properties": {"scaleSettings": {"manual": {"targetNodeCount": 1}}, "vmSize": "x"}})", "[]"}) {
    EXPECT_EQ(as_root(Method::kPatch, path, wrong).status, 400) << wrong;
  }
}

TEST_F(Resources, lists_come_in_pages_that_link_to_the_next) {
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(as_ada(Method::kPut, std::string("/workspaces/w/experiments/e/jobs/") + name, kJobFile).status, 201);
  }
  std::string target = "/workspaces/w/experiments/e/jobs?maxresults=2";
  std::vector<std::string> names;
  for (int pages = 0; !target.empty() && pages < 5; ++pages) {
    const json page = json::parse(as_ada(Method::kGet, target).body);
    for (const json& job : page["value"]) names.push_back(job["name"]);
    target = page["nextLink"].is_null() ? "" : page["nextLink"].get<std::string>();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(json::parse(as_ada(Method::kGet, "/workspaces/w/jobs?state=Succeeded").body)["value"].size(), 0U);
  EXPECT_EQ(json::parse(as_ada(Method::kGet, "/workspaces/w/jobs?state=queued").body)["value"].size(), 3U);
  for (const char* query :
       {"maxresults=0", "maxresults=1001", "maxresults=x", "state=lost", "after=../x", "order=size", "what=1"}) {
    EXPECT_EQ(as_ada(Method::kGet, std::string("/workspaces/w/jobs?") + query).status, 400) << query;
  }
}

TEST_F(Resources, actions_and_explanations) {
  EXPECT_EQ(as_ada(Method::kPost, std::string(kJob) + "/terminate").status, 404);
  as_ada(Method::kPut, kJob, kJobFile);
  EXPECT_EQ(as_ada(Method::kPost, std::string(kJob) + "/terminate").status, 200);
  const json why = json::parse(as_ada(Method::kGet, std::string(kJob) + "/why").body);
  EXPECT_EQ(why["reason"], "waitingForNodes");
  EXPECT_EQ(why["expectedStart"], "1970-01-01T00:00:02.000000Z");
  EXPECT_EQ(as_ada(Method::kDelete, kJob).status, 202);
  EXPECT_EQ(code_of(as_ada(Method::kGet, kJob)), "JobNotFound");
  EXPECT_EQ(json::parse(as_ada(Method::kGet, "/").body)["sender"]["name"], "ada");
}

TEST_F(Resources, code_is_kept_under_the_checksum_that_it_has) {
  const std::string code = "/workspaces/w/code/";
  const std::string text = "an archive";
  const Answer wrong = as_ada(Method::kPut, code + std::string(64, '0'), text);
  EXPECT_EQ(code_of(wrong), "ChecksumMismatch");
  const std::string message = json::parse(wrong.body)["error"]["message"];
  const std::string sha256 = message.substr(message.find("is ") + 3, 64);
  EXPECT_EQ(as_ada(Method::kGet, code + sha256).status, 404);
  EXPECT_EQ(as_ada(Method::kPut, code + sha256, text).status, 204);
  EXPECT_EQ(as_ada(Method::kGet, code + sha256).status, 204);
  EXPECT_EQ(as_ada(Method::kPut, code + "short", text).status, 400);
  EXPECT_EQ(as_ada(Method::kPut, std::string(kJob) + "?code=" + sha256, kJobFile).status, 201);
  EXPECT_EQ(service_->last_submission().code, sha256);
  EXPECT_EQ(as_ada(Method::kPut, std::string(kJob) + "?code=x", kJobFile).status, 400);
}

// To clone a job is to start it with its code; other users of the workspace could read the code by that.
TEST_F(Resources, a_job_names_its_code_to_its_submitter_and_to_administrators_alone) {
  const std::string sha256(64, 'a');
  const auto own = [](const Answer& answer) { return json::parse(answer.body)["gyre"]; };
  as_ada(Method::kPut, kJob, kJobFile);
  EXPECT_EQ(own(as_ada(Method::kGet, kJob))["hasCode"], false);
  as_ada(Method::kPut, std::string(kJob) + "?code=" + sha256, kJobFile);
  EXPECT_EQ(own(as_ada(Method::kGet, kJob))["code"], sha256);
  EXPECT_EQ(own(as_root(Method::kGet, kJob))["code"], sha256);
  service_->add_owner("w", "bob");
  net::http::Client bob = client("bob-token");
  const json others = own(ask(bob, Method::kGet, kJob));
  EXPECT_EQ(others["hasCode"], true);
  EXPECT_FALSE(others.contains("code"));
}

TEST_F(Resources, a_body_that_is_not_an_object_is_one_clear_error) {
  net::http::Client root = client("root-token");
  for (const std::string& body :
       {std::string("{"), std::string("7"), std::string("[]"), "{\"a\":" + std::string(40, '['), std::string("\xff"),
        std::string("{\"isAdministrator\": 1}")}) {
    const Answer answer = ask(root, Method::kPut, "/users/x", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(code_of(answer), "InvalidBody") << body;
  }
}

}  // namespace
}  // namespace gyre::jobs::http
