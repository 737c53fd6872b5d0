#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gyre/jobs/api/interface_test_support.h"
#include "gyre/jobs/client/session.h"

// For tests of the client: a real HTTP server, with a service behind it that keeps everything in memory.
namespace gyre::jobs::client {

class ClientTest : public api::InterfaceTest {
 protected:
  void SetUp() override {
    InterfaceTest::SetUp();
    session_of("root-token").put({"workspaces", "w", "clusters", "c"}, Json::parse(api::kClusterFile));
    Session session = session_of("ada-token");
    session.put({"workspaces", "w", "experiments", "e"});
    session.put(path_of(kPlace), Json::parse(api::kJobFile));
  }

  Session session_of(const std::string& token,
                     std::chrono::milliseconds patience = std::chrono::milliseconds(0)) const {
    return Session({.connection = {{server_->endpoints()[0], ""}, token}, .patience = patience});
  }
  std::filesystem::path logs() const { return service_->files_of({"w", "e", "j"}); }

  /// A server at the same place, as after a restart.
  void start_again() {
    net::http::ServerOptions options;
    options.endpoints = {server_->endpoints()[0]};
    options.authenticate = api::make_authenticator(service_);
    server_.reset();
    server_ = std::make_unique<net::http::Server>(std::move(options), api::make_router(service_));
  }

  inline static const resources::JobName kPlace{"w", "e", "j"};
};

}  // namespace gyre::jobs::client
