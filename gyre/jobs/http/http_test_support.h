#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "gyre/jobs/http/interface.h"
#include "gyre/jobs/service/service_test_support.h"
#include "gyre/net/http/client.h"
#include "gyre/net/http/error.h"
#include "gyre/net/http/server.h"

// For tests of the whole job service as its clients see it: over HTTP, with the tokens of an administrator, of ada, who
// owns workspace "w", and of bob, who owns "other".
namespace gyre::jobs::http {

namespace fs = std::filesystem;
using drivers::conformance::content_of;
using drivers::conformance::wait_until;
using net::http::Method;
using resources::ExecutionState;
using service::JobServiceTest;
using service::kCluster;
using service::Service;
using service::ServiceOptions;
using testing::HasSubstr;
using testing::Not;
using Answer = net::http::ClientResponse;

class ServiceOverHttpTest : public JobServiceTest {
 protected:
  ServiceOverHttpTest() {
    root_token_ = service_->create_user({"root", true});
    ada_token_ = service_->create_user({"ada", false});
    bob_token_ = service_->create_user({"bob", false});
    service_->add_owner("w", "ada");
    service_->create_workspace({"bob", false}, {"other", ""});
    serve();
  }
  ~ServiceOverHttpTest() override { stop_serving(); }

  void serve() {
    shared_ = std::shared_ptr<Service>(service_.get(), [](Service*) {});
    net::http::ServerOptions options;
    options.endpoints = {net::parse_endpoint("tcp:127.0.0.1:0")};
    options.authenticate = make_authenticator(shared_);
    options.limits = limits_;
    server_ = std::make_unique<net::http::Server>(std::move(options), make_router(shared_));
  }
  void stop_serving() { server_.reset(); }

  net::http::Client client(const std::string& token) const {
    return net::http::Client({.endpoint = server_->endpoints()[0], .token = token});
  }
  /// Errors as answers.
  static Answer ask(net::http::Client& client, Method method, const std::string& target, std::string body = {}) {
    try {
      return client.send({.method = method, .target = net::http::parse_target(target), .body = std::move(body)});
    } catch (const net::http::HttpError& error) {
      return {error.status(), error.headers, error_response(error).body};
    }
  }
  Answer as_ada(Method method, const std::string& target, std::string body = {}) const {
    net::http::Client ada = client(ada_token_);
    return ask(ada, method, target, std::move(body));
  }
  nlohmann::json read(const std::string& target) const {
    const Answer answer = as_ada(Method::kGet, target);
    EXPECT_EQ(answer.status, 200) << target << ": " << answer.body;
    return nlohmann::json::parse(answer.body);
  }
  static std::string code_of(const Answer& answer) {
    const auto body = nlohmann::json::parse(answer.body, nullptr, false);
    return body.is_object() && body.contains("error") ? body["error"]["code"].get<std::string>() : "";
  }
  static std::string path_of(const std::string& job) { return "/workspaces/w/experiments/e/jobs/" + job; }

  net::http::ServerLimits limits_ = [] {
    net::http::ServerLimits limits;
    limits.failed_logins = {.per_second = 1e6, .burst = 1e6};
    limits.requests = {.per_second = 1e6, .burst = 1e6};
    return limits;
  }();
  std::string root_token_;
  std::string ada_token_;
  std::string bob_token_;
  std::shared_ptr<Service> shared_;  // The fixture's own service.
  std::unique_ptr<net::http::Server> server_;
};

}  // namespace gyre::jobs::http
