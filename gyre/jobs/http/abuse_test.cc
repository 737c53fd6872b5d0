// Whoever reaches the service's socket may send anything, and whoever may submit a job may write anything into its
// directories. The service stays up, gives nothing away, and says what it refused. The routes' own tests use a service
// in memory; here everything behind them is real.
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <list>
#include <regex>
#include <set>
#include <utility>
#include <vector>

#include "gyre/jobs/http/http_test_support.h"
#include "gyre/net/http/test_support.h"

namespace gyre::jobs::http {
namespace {

using net::http::RawClient;
using net::http::Route;

constexpr std::array kMethods{Method::kGet,   Method::kHead,   Method::kPut,    Method::kPost,
                              Method::kPatch, Method::kDelete, Method::kOptions};

/// The route's pattern with names in the place of its parameters: of things that exist.
std::string target_of(const Route& route, const std::string& workspace) {
  std::string target = std::regex_replace(route.pattern, std::regex(R"(\{workspace\})"), workspace);
  target = std::regex_replace(target, std::regex(R"(\{sha256\})"), std::string(64, 'a'));
  target = std::regex_replace(target, std::regex(R"(\{experiment\})"), "e");
  target = std::regex_replace(target, std::regex(R"(\{job\})"), "secret");
  target = std::regex_replace(target, std::regex(R"(\{cluster\})"), "c");
  target = std::regex_replace(target, std::regex(R"(\{output\})"), "stdouterr");
  target = std::regex_replace(target, std::regex(R"(\{user\})"), "ada");
  return std::regex_replace(target, std::regex(R"(\{[a-z.]+\})"), "stdout.txt");
}

class AbuseTest : public ServiceOverHttpTest {
 protected:
  AbuseTest() {
    make_cluster(1);
    submit("secret", job_of(1, "echo the-secret-of-w"));
    ended("secret");
  }

  std::vector<Route> routes() const { return make_router(shared_).routes(); }
  std::string head(const std::string& method, const std::string& target, const std::string& more) const {
    return fmt::format("{} {} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\n{}\r\n", method, target, ada_token_,
                       more);
  }
  std::string send(const std::string& request) const {
    RawClient raw(server_->endpoints()[0]);
    return raw.ask(request);
  }
  /// Everything of workspace "w" that could have been changed.
  std::string everything() const {
    std::string text;
    for (const char* target : {"/workspaces/w", "/workspaces/w/owners", "/workspaces/w/clusters/c",
                               "/workspaces/w/experiments", "/workspaces/w/jobs", "/workspaces/w/events"}) {
      text += read(target).dump();
    }
    return text;
  }
  bool serves() const { return as_ada(Method::kGet, "/workspaces/w").status == 200; }
};

TEST_F(AbuseTest, every_route_and_method_refuses_strangers_and_tells_them_nothing) {
  const std::string before = everything();
  for (const std::string& token :
       std::vector<std::string>{std::string(), std::string("wrong"), ada_token_.substr(1), std::string(64, '0')}) {
    net::http::Client stranger = client(token);
    for (const Route& route : routes()) {
      if (route.open) continue;
      std::set<std::string> answers;
      for (const Method method : kMethods) {
        for (const char* workspace : {"w", "missing"}) {
          const Answer answer = ask(stranger, method, target_of(route, workspace));
          EXPECT_EQ(answer.status, 401) << method_name(method) << " " << route.pattern;
          if (method != Method::kHead) answers.insert(answer.body);
        }
      }
      EXPECT_EQ(answers.size(), 1U) << route.pattern << " tells strangers what exists";
    }
  }
  EXPECT_EQ(everything(), before);
}

TEST_F(AbuseTest, another_workspaces_owner_sees_a_workspace_that_does_not_exist_and_changes_nothing) {
  const std::string before = everything();
  net::http::Client bob = client(bob_token_);
  for (const Route& route : routes()) {
    if (route.pattern.find("{workspace}") == std::string::npos) continue;
    for (const Method method : kMethods) {
      const Answer there = ask(bob, method, target_of(route, "w"));
      const Answer missing = ask(bob, method, target_of(route, "m"));
      EXPECT_EQ(there.status, missing.status) << method_name(method) << " " << route.pattern;
      EXPECT_TRUE(there.status == 404 || there.status == 405 || there.status == 403)
          << there.status << " " << method_name(method) << " " << route.pattern;
      if (method == Method::kHead) continue;
      EXPECT_EQ(std::regex_replace(there.body, std::regex("/w\\b|'w'|\"w\""), "-"),
                std::regex_replace(missing.body, std::regex("/m\\b|'m'|\"m\""), "-"));
      EXPECT_THAT(there.body, Not(HasSubstr("the-secret-of-w")));
    }
  }
  EXPECT_EQ(everything(), before);
}

TEST_F(AbuseTest, a_token_is_void_as_soon_as_it_is_renewed_or_its_user_is_gone) {
  net::http::Client bob = client(bob_token_);
  EXPECT_EQ(ask(bob, Method::kGet, "/workspaces/other").status, 200);
  service_->renew_token("bob");
  EXPECT_EQ(ask(bob, Method::kGet, "/workspaces/other").status, 401);
  service_->delete_user("ada");
  EXPECT_EQ(as_ada(Method::kGet, "/workspaces/w").status, 401);
}

// A quota that its own workspace could lift would be none.
TEST_F(AbuseTest, quotas_are_for_administrators_to_set) {
  const std::string target = "/workspaces/w/quotas";
  EXPECT_EQ(as_ada(Method::kPut, target, R"({"cores": 1000})").status, 403);
  net::http::Client root = client(root_token_);
  for (const char* body : {R"({"cores": -1})", R"({"cores": 1.5})", R"({"cores": "1"})", R"({"gpus": 1})", "[]",
                           R"({"cores": 18446744073709551615})"}) {
    EXPECT_EQ(ask(root, Method::kPut, target, body).status, 400) << body;
  }
  EXPECT_EQ(ask(root, Method::kPut, "/workspaces/missing/quotas", "{}").status, 404);
  const Answer set = ask(root, Method::kPut, target, R"({"cores": 8})");
  EXPECT_EQ(set.status, 200) << set.body;
  EXPECT_EQ(nlohmann::json::parse(set.body).at("properties").at("quotas").at("cores"), 8);
  const auto usages = read("/workspaces/w/usages").at("value");
  EXPECT_EQ(usages.at(0).at("limit"), 8);
  EXPECT_EQ(usages.at(0).at("name").at("value"), "cores");
  EXPECT_EQ(usages.at(1).at("limit"), nullptr);
  EXPECT_EQ(ask(root, Method::kPut, target, R"({"cores": null})").status, 200);
  EXPECT_EQ(read("/workspaces/w/usages").at("value").at(0).at("limit"), nullptr);
}

TEST_F(AbuseTest, no_path_leads_out_of_a_jobs_directories) {
  submit(
      "links",
      job_of(1,
             "cd $AZ_BATCHAI_STDOUTERR_DIR; ln -s /etc/passwd passwd; ln -s / root; ln -s /proc/self/environ "
             "environ; mkfifo pipe; ln -s stdout.txt inside; mkdir deep; ln -s ../../secret-of-others deep/up; echo x "
             "> plain"));
  EXPECT_EQ(ended("links").execution_state, ExecutionState::kSucceeded);
  const std::string files = path_of("links") + "/files/stdouterr/";
  EXPECT_EQ(as_ada(Method::kGet, files + "plain").body, "x\n");
  EXPECT_EQ(as_ada(Method::kGet, files + "inside").status, 200);
  for (const char* out : {"passwd", "root/etc/passwd", "environ", "pipe", "deep/up", "root"}) {
    const Answer answer = as_ada(Method::kGet, files + out);
    EXPECT_TRUE(answer.status == 403 || answer.status == 404) << out << ": " << answer.status;
    EXPECT_THAT(answer.body, Not(HasSubstr("root:x:0"))) << out;
    const Answer followed = as_ada(Method::kGet, files + out + "?follow=true");
    EXPECT_TRUE(followed.status == 403 || followed.status == 404) << out << ": " << followed.status;
  }
  for (const char* path :
       {"../../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "./plain", "plain%00.txt",
        "%c0%ae%c0%ae/etc/passwd", "//etc/passwd", "..\\..\\etc\\passwd", "plain/.."}) {
    const std::string answer = send(head("GET", files + path, ""));
    const std::string status = net::http::status_of(answer);
    EXPECT_TRUE(status == "400" || status == "404") << path << ": " << answer;
    EXPECT_THAT(answer, Not(HasSubstr("root:x:0")));
  }
  for (const char* directory : {"..", "../..", "deep/../..", "/etc", "root", "root/etc", "a%00b"}) {
    const std::string answer = send(head("GET", path_of("links") + "/files?directory=" + directory, ""));
    EXPECT_NE(net::http::status_of(answer), "200") << directory << ": " << answer;
    EXPECT_THAT(answer, Not(HasSubstr("passwd-"))) << directory;
  }
}

TEST_F(AbuseTest, names_that_are_too_long_or_mean_something_elsewhere_are_refused) {
  const std::string job = R"({"properties": {"cluster": {"id": "c"}, "nodeCount": 1, "stdOutErrPathPrefix":
      "$AZ_BATCHAI_MOUNT_ROOT/share", "customToolkitSettings": {"commandLine": "true"}}})";
  net::http::Client root = client(root_token_);
  const std::string before = everything();
  for (const std::string& name : std::vector<std::string>{
           std::string(65, 'n'), std::string(10'000, 'n'), std::string("a.b"), std::string("a%20b"),
           std::string("%2e%2e"), std::string("a%00"), std::string("%ff"), std::string("a;b")}) {
    for (const std::string& target :
         std::vector<std::string>{"/workspaces/" + name, "/users/" + name, "/workspaces/w/clusters/" + name,
                                  "/workspaces/w/experiments/" + name, "/workspaces/w/experiments/e/jobs/" + name,
                                  "/workspaces/w/owners/" + name}) {
      RawClient raw(server_->endpoints()[0]);
      const std::string body = target.find("/jobs/") != std::string::npos ? job : "";
      const std::string answer =
          raw.ask(fmt::format("PUT {} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{}",
                              target, root_token_, body.size(), body));
      const std::string status = net::http::status_of(answer);
      EXPECT_TRUE(status == "400" || status == "404" || status == "414") << target.substr(0, 100) << ": " << answer;
    }
  }
  EXPECT_EQ(everything(), before);
  EXPECT_EQ(ask(root, Method::kPut, "/workspaces/" + std::string(64, 'n'), "{}").status, 201);
}

TEST_F(AbuseTest, a_body_of_100_MB_is_refused_by_every_route_before_it_is_sent) {
  for (const Route& route : routes()) {
    if (route.open || route.method == Method::kGet || route.body_to_file) continue;
    RawClient raw(server_->endpoints()[0]);
    const std::string answer = raw.ask(
        fmt::format("{} {} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\nContent-Length: 104857600\r\n\r\n",
                    method_name(route.method), target_of(route, "w"), root_token_));
    EXPECT_EQ(net::http::status_of(answer), "413") << route.pattern << ": " << answer;
  }
  EXPECT_TRUE(serves());
}

TEST_F(AbuseTest, nested_nonsense_is_one_clear_refusal) {
  const std::string deep_json = "{\"properties\":" + std::string(100'000, '[');
  std::string deep_yaml = "properties: ";
  for (int i = 0; i < 5'000; ++i) deep_yaml += "{a: ";
  std::string laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'k'; ++c)
    laughs += fmt::format("{}: &{} [*{},*{},*{},*{},*{},*{},*{},*{}]\n", c, c, char(c - 1), char(c - 1), char(c - 1),
                          char(c - 1), char(c - 1), char(c - 1), char(c - 1), char(c - 1));
  net::http::Client root = client(root_token_);
  for (const std::string& body : std::vector<std::string>{
           deep_json, deep_yaml, laughs, std::string("\0\0\0", 3), std::string("{\"properties\": 1e999}"),
           std::string("\xff\xfe{\0}\0", 6), std::string("null"), std::string("[]"), std::string("\"text\""),
           std::string("{\"properties\": {\"nodeCount\": 1e18}}"), std::string(1'000'000, ' ')}) {
    for (const std::string& target :
         std::vector<std::string>{path_of("nonsense"), std::string("/workspaces/w/clusters/nonsense")}) {
      const Answer answer = ask(root, Method::kPut, target, body);
      EXPECT_EQ(answer.status, 400) << body.substr(0, 40) << ": " << answer.body;
      EXPECT_LT(answer.body.size(), 200'000U);
      EXPECT_FALSE(code_of(answer).empty());
    }
    const int status = ask(root, Method::kPatch, "/workspaces/w/clusters/c", body).status;
    EXPECT_EQ(status, body.size() > 65'536 ? 413 : 400) << body.substr(0, 40);
  }
  EXPECT_TRUE(serves());
}

TEST_F(AbuseTest, queries_that_mean_nothing_are_refused_by_name) {
  for (const char* target :
       {"/workspaces/w/jobs?maxresults=0", "/workspaces/w/jobs?maxresults=99999999999999999999",
        "/workspaces/w/jobs?after=x", "/workspaces/w/jobs?after=-1e9", "/workspaces/w/jobs?state=lost",
        "/workspaces/w/jobs?experiment=..", "/workspaces/w/jobs?no=such", "/workspaces/w/events?after=-1",
        "/workspaces/w/events?after=18446744073709551617", "/workspaces/w/jobs?order=upwards"}) {
    const Answer answer = as_ada(Method::kGet, target);
    EXPECT_EQ(answer.status, 400) << target << ": " << answer.body;
  }
  EXPECT_EQ(as_ada(Method::kGet, "/workspaces/w/jobs?after=9223372036854775807").status, 200);
}

// Slow, endless and idle clients take descriptors and memory, and nothing else: a job is submitted, runs and is
// followed meanwhile.
TEST_F(AbuseTest, slow_endless_and_idle_clients_disturb_nobody) {
  constexpr int kOfEach = 300;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit more{std::min<rlim_t>(before.rlim_max, 4'096), before.rlim_max};
  ASSERT_GT(more.rlim_cur, 8U * kOfEach);
  ::setrlimit(RLIMIT_NOFILE, &more);
  {
    std::list<RawClient> clients;
    for (int i = 0; i < kOfEach; ++i) {
      clients.emplace_back(server_->endpoints()[0]);                                 // Says nothing.
      clients.emplace_back(server_->endpoints()[0]).write("GET /workspaces/w HTT");  // Never ends its head.
      clients.emplace_back(server_->endpoints()[0])
          .write(head("PUT", path_of("endless"), "Transfer-Encoding: chunked\r\n") + "5\r\n{\"pro");  // Nor its body.
    }
    const auto begin = SteadyClock::now();
    net::http::Client root = client(root_token_);  // Ada has used up her share of bodies.
    const Answer answer = ask(root, Method::kPut, path_of("meanwhile"),
                              R"({"properties": {"cluster": {"id": "c"}, "nodeCount": 1, "stdOutErrPathPrefix":
      "$AZ_BATCHAI_MOUNT_ROOT/share", "customToolkitSettings": {"commandLine": "echo done"}}})");
    EXPECT_EQ(answer.status, 201) << answer.body;
    EXPECT_LT(SteadyClock::now() - begin, std::chrono::seconds(2));
    EXPECT_EQ(ended("meanwhile").execution_state, ExecutionState::kSucceeded);
    EXPECT_EQ(as_ada(Method::kGet, path_of("meanwhile") + "/files/stdouterr/stdout.txt?follow=true").body, "done\n");
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(as_ada(Method::kGet, path_of("endless")).status, 404);
}

}  // namespace
}  // namespace gyre::jobs::http
