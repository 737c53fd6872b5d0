#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gyre/jobs/client/session.h"
#include "gyre/jobs/http/interface_test_support.h"

// For tests of the client: a real HTTP server, with a service behind it that keeps everything in memory.
namespace gyre::jobs::client {

class ClientTest : public http::InterfaceTest {
 protected:
  void SetUp() override {
    InterfaceTest::SetUp();
    session_of("root-token").put({"workspaces", "w", "clusters", "c"}, Json::parse(http::kClusterFile));
    Session session = session_of("ada-token");
    session.put({"workspaces", "w", "experiments", "e"});
    session.put(path_of(kPlace), Json::parse(http::kJobFile));
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
    options.authenticate = http::make_authenticator(service_);
    server_.reset();
    server_ = std::make_unique<net::http::Server>(std::move(options), http::make_router(service_));
  }

  inline static const resources::JobName kPlace{"w", "e", "j"};
};

}  // namespace gyre::jobs::client
