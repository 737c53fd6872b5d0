// Every route, with every method, for everybody who may not use it: nothing is done, and nothing is given away.
#include <array>
#include <regex>

#include "gyre/jobs/http/interface_test_support.h"

namespace gyre::jobs::http {
namespace {

using net::http::Method;
using net::http::Route;

constexpr std::array kMethods{Method::kGet,   Method::kHead,   Method::kPut,    Method::kPost,
                              Method::kPatch, Method::kDelete, Method::kOptions};

/// The route's pattern with names in the place of its parameters.
std::string target_of(const Route& route, const std::string& workspace) {
  std::string target = std::regex_replace(route.pattern, std::regex(R"(\{workspace\})"), workspace);
  target = std::regex_replace(target, std::regex(R"(\{sha256\})"), std::string(64, 'a'));
  return std::regex_replace(target, std::regex(R"(\{[a-z.]+\})"), "x");
}

class Access : public InterfaceTest {};

TEST_F(Access, without_a_valid_token_every_route_is_401_whatever_the_method) {
  const auto router = make_router(service_);
  for (const std::string token : {"", "wrong"}) {
    net::http::Client stranger = client(token);
    for (const Route& route : router.routes()) {
      if (route.open) continue;
      for (const Method method : kMethods) {
        for (const std::string workspace : {"w", "missing"}) {
          const Answer answer = ask(stranger, method, target_of(route, workspace));
          EXPECT_EQ(answer.status, 401) << method_name(method) << " " << route.pattern;
        }
      }
    }
    EXPECT_EQ(ask(stranger, Method::kGet, "/no/such/route").status, 401);
  }
  EXPECT_EQ(service_->calls(), 0);
}

TEST_F(Access, with_another_workspaces_token_a_workspace_looks_like_one_that_does_not_exist) {
  const auto router = make_router(service_);
  net::http::Client bob = client("bob-token");
  int routes = 0;
  for (const Route& route : router.routes()) {
    if (route.pattern.find("{workspace}") == std::string::npos) continue;
    ++routes;
    for (const Method method : kMethods) {
      const Answer there = ask(bob, method, target_of(route, "w"));
      const Answer missing = ask(bob, method, target_of(route, "m"));
      EXPECT_EQ(there.status, missing.status) << method_name(method) << " " << route.pattern;
      EXPECT_TRUE(there.status == 404 || there.status == 405 || there.status == 403)
          << there.status << " " << method_name(method) << " " << route.pattern;
      if (method == Method::kHead) continue;
      EXPECT_EQ(std::regex_replace(there.body, std::regex("/w\\b|'w'|\"w\""), "-"),
                std::regex_replace(missing.body, std::regex("/m\\b|'m'|\"m\""), "-"));
    }
  }
  EXPECT_GT(routes, 30);
  EXPECT_EQ(service_->calls(), 0);
}

TEST_F(Access, every_route_answers_its_owner_and_no_other_method) {
  const auto router = make_router(service_);
  net::http::Client ada = client("ada-token");
  for (const Route& route : router.routes()) {
    if (route.pattern.find("{workspace}") == std::string::npos || route.pattern == "/workspaces/{workspace}") continue;
    for (const Method method : kMethods) {
      const std::string target = target_of(route, "w");
      const bool exists = router.find(method, net::http::parse_target(target)).route != nullptr;
      const Answer answer = ask(ada, method, target);
      EXPECT_EQ(answer.status == 405, !exists) << answer.status << " " << method_name(method) << " " << route.pattern;
      EXPECT_LT(answer.status, 500) << method_name(method) << " " << route.pattern;
      EXPECT_NE(answer.status, 401);
    }
  }
}

TEST_F(Access, users_and_workspaces_are_made_by_administrators_alone) {
  for (const std::string target : {"/users", "/users/x", "/users/x/renewToken", "/workspaces/new"}) {
    for (const Method method : kMethods) {
      const int status = as_ada(method, target).status;
      EXPECT_TRUE(status == 403 || status == 405 || status == 404)
          << status << " " << method_name(method) << " " << target;
    }
  }
  EXPECT_EQ(service_->users().size(), 3U);
  net::http::Client root = client("root-token");
  EXPECT_EQ(ask(root, Method::kPut, "/users/eve", R"({"isAdministrator": true})").status, 201);
  EXPECT_EQ(ask(root, Method::kPut, "/workspaces/new", R"({"location": "here"})").status, 201);
  EXPECT_EQ(ask(root, Method::kPatch, "/users/eve", R"({"account": "evelyn", "isTrusted": true})").status, 200);
  EXPECT_EQ(ask(root, Method::kPatch, "/users/eve", R"({"isAdministrator": true})").status, 400);
  EXPECT_EQ(ask(root, Method::kPatch, "/users/nosuch", R"({"account": "x"})").status, 404);
  EXPECT_NE(ask(root, Method::kGet, "/users").body.find(R"("account":"evelyn")"), std::string::npos);
  EXPECT_EQ(ask(root, Method::kDelete, "/users/root").status, 409);
  EXPECT_EQ(ask(root, Method::kDelete, "/users/eve").status, 204);
}

TEST_F(Access, clusters_are_made_changed_and_deleted_by_administrators_alone) {
  const std::string path = "/workspaces/w/clusters/c";
  const std::string scale = R"({"properties": {"scaleSettings": {"manual": {"targetNodeCount": 3}}}})";
  EXPECT_EQ(as_ada(Method::kPut, path, kClusterFile).status, 403);
  EXPECT_EQ(as_root(Method::kPut, path, kClusterFile).status, 201);
  for (const auto& [method, body] : {std::pair(Method::kPatch, scale), std::pair(Method::kDelete, std::string())}) {
    const Answer refused = as_ada(method, path, body);
    EXPECT_EQ(refused.status, 403) << method_name(method);
    EXPECT_EQ(code_of(refused), "NotAdministrator");
    EXPECT_NE(refused.body.find("only administrators make, change and delete clusters"), std::string::npos);
  }
  EXPECT_EQ(as_ada(Method::kGet, path).status, 200);
  EXPECT_EQ(as_ada(Method::kPut, kJob, kJobFile).status, 201);
  EXPECT_EQ(as_root(Method::kPatch, path, scale).status, 200);
  EXPECT_EQ(as_root(Method::kDelete, path).status, 202);
}

TEST_F(Access, viewers_of_a_workspace_look_and_change_nothing) {
  service_->add_user("viewer", false, "viewer-token");
  service_->add_owner("w", "viewer");
  net::http::Client viewer = client("viewer-token");
  const auto router = make_router(service_);
  for (const Route& route : router.routes()) {
    if (route.pattern.find("{workspace}") == std::string::npos || route.body_to_file) continue;
    const Answer answer = ask(viewer, route.method, target_of(route, "w"));
    const bool refused =
        answer.status == 403 && (code_of(answer) == "NotTrusted" || code_of(answer) == "NotAdministrator");
    EXPECT_EQ(refused, route.method != Method::kGet)
        << method_name(route.method) << " " << route.pattern << ": " << answer.status;
  }
}

TEST_F(Access, a_job_cannot_use_a_cluster_of_a_workspace_that_its_sender_may_not_use) {
  std::string job = kJobFile;
  job.replace(job.find("\"c\""), 3, "\"/workspaces/other/clusters/c\"");
  const Answer refused = as_ada(Method::kPut, kJob, job);
  EXPECT_EQ(refused.status, 404);
  EXPECT_EQ(code_of(refused), "WorkspaceNotFound");
  service_->add_owner("other", "ada");
  EXPECT_EQ(as_ada(Method::kPut, kJob, job).status, 201);
  EXPECT_EQ(service_->last_submission().cluster.workspace, "other");
}

TEST_F(Access, an_owner_lets_others_in_and_out) {
  net::http::Client bob = client("bob-token");
  EXPECT_EQ(ask(bob, Method::kGet, "/workspaces/w").status, 404);
  EXPECT_EQ(as_ada(Method::kPut, "/workspaces/w/owners/bob").status, 204);
  EXPECT_EQ(ask(bob, Method::kGet, "/workspaces/w").status, 200);
  EXPECT_EQ(as_ada(Method::kDelete, "/workspaces/w/owners/bob").status, 204);
  EXPECT_EQ(ask(bob, Method::kGet, "/workspaces/w").status, 404);
}

TEST_F(Access, health_is_for_everybody_and_says_nothing_else) {
  net::http::Client stranger = client("");
  EXPECT_EQ(ask(stranger, Method::kGet, "/health").body, R"({"status":"ok"})");
}

}  // namespace
}  // namespace gyre::jobs::http
