#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gyre/jobs/http/interface.h"
#include "gyre/jobs/http/service_test_support.h"
#include "gyre/net/http/client.h"
#include "gyre/net/http/error.h"

// For tests of the HTTP interface: a server, and clients with the tokens of an administrator, of an owner of workspace
// "w", and of somebody who owns "other".
namespace gyre::jobs::http {

inline constexpr const char* kJobFile = R"({"properties": {
  "cluster": {"id": "c"}, "nodeCount": 2, "stdOutErrPathPrefix": "/tmp/logs",
  "customToolkitSettings": {"commandLine": "echo hello"},
  "secrets": [{"name": "KEY", "value": "do not tell"}]}})";

inline constexpr const char* kClusterFile = R"({"properties": {
  "vmSize": "STANDARD_D1", "scaleSettings": {"manual": {"targetNodeCount": 2}}}})";

class InterfaceTest : public testing::Test {
 protected:
  using Method = net::http::Method;
  using Answer = net::http::ClientResponse;

  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "gyre_api_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    service_ = std::make_shared<MemoryService>(directory_ / "files");
    service_->add_user("root", true, "root-token");
    service_->add_user("ada", false, "ada-token");
    service_->add_user("bob", false, "bob-token");
    service_->create_workspace({"ada"}, {"w", "here"});
    service_->create_workspace({"bob"}, {"other", "here"});
    net::http::ServerOptions options;
    options.endpoints = {net::parse_endpoint("tcp:127.0.0.1:0")};
    options.authenticate = make_authenticator(service_);
    options.limits.failed_logins = {.per_second = 1e6, .burst = 1e6};
    server_ = std::make_unique<net::http::Server>(std::move(options), make_router(service_));
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  net::http::Client client(const std::string& token) const {
    return net::http::Client({.endpoint = server_->endpoints()[0], .token = token});
  }

  /// Errors as answers.
  static Answer ask(net::http::Client& client, Method method, const std::string& target, std::string body = {},
                    net::http::Headers headers = {}) {
    try {
      return client.send({.method = method,
                          .target = net::http::parse_target(target),
                          .headers = std::move(headers),
                          .body = std::move(body)});
    } catch (const net::http::HttpError& error) {
      return {error.status(), error.headers, error_response(error).body};
    }
  }
  Answer as_ada(Method method, const std::string& target, std::string body = {}, net::http::Headers headers = {}) {
    net::http::Client ada = client("ada-token");
    return ask(ada, method, target, std::move(body), std::move(headers));
  }
  Answer as_root(Method method, const std::string& target, std::string body = {}) {
    net::http::Client root = client("root-token");
    return ask(root, method, target, std::move(body));
  }
  static std::string code_of(const Answer& answer) {
    const auto body = nlohmann::json::parse(answer.body, nullptr, false);
    return body.is_object() && body.contains("error") ? body["error"]["code"].get<std::string>() : "";
  }

  void write_log(const std::string& job, const std::string& name, const std::string& text) const {
    const auto path = service_->files_of({"w", "e", job}) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::app) << text;
  }

  static constexpr const char* kJob = "/workspaces/w/experiments/e/jobs/j";

  std::filesystem::path directory_;
  std::shared_ptr<MemoryService> service_;
  std::unique_ptr<net::http::Server> server_;
};

}  // namespace gyre::jobs::http
