#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "gyre/jobs/http/http_test_support.h"

// For tests that kill the service: it is a process of its own, and is asked over HTTP.
namespace gyre::jobs::http {

using Json = nlohmann::json;

/// A service with its HTTP interface, as a process of its own.
class ServiceProcess {
 public:
  ServiceProcess(const ServiceOptions& options, net::Endpoint endpoint)
      : options_(options), endpoint_(std::move(endpoint)) {
    start();
  }
  ~ServiceProcess() { kill(); }
  ServiceProcess(const ServiceProcess&) = delete;
  ServiceProcess& operator=(const ServiceProcess&) = delete;

  void start() {
    child_ = ::fork();
    if (child_ != 0) return;
    try {
      const auto service = std::make_shared<Service>(options_);
      net::http::ServerOptions options;
      options.endpoints = {endpoint_};
      options.authenticate = make_authenticator(service);
      const net::http::Server server(std::move(options), make_router(service));
      for (;;) ::pause();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the service ended: %s\n", error.what());
      ::_exit(1);
    }
  }
  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    int status = 0;
    ::waitpid(child_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the service ended by itself: " << status;
    child_ = 0;
  }

 private:
  ServiceOptions options_;
  net::Endpoint endpoint_;
  pid_t child_ = 0;
};

class ServiceProcessTest : public JobServiceTest {
 protected:
  explicit ServiceProcessTest(int nodes) {
    make_cluster(nodes);
    token_ = service_->create_user({"root", true});
    service_.reset();  // From now on it is a process of its own.
    endpoint_ = net::parse_endpoint("unix:" + (folder_.path() / "api.sock").string());
  }

  void start_process() { process_ = std::make_unique<ServiceProcess>(options_, endpoint_); }

  Json ask(Method method, const std::string& target, const std::string& body = "") const {
    for (int left = 10;; --left) {
      try {
        net::http::Client client({.endpoint = endpoint_, .token = token_, .connect = std::chrono::seconds(30)});
        const auto answer =
            client.send({.method = method, .target = net::http::parse_target(target), .headers = {}, .body = body});
        return answer.body.empty() ? Json() : Json::parse(answer.body);
      } catch (const Error& error) {
        // A process that the killed service was about to start holds its listening socket for a moment, and closes it.
        if (error.code() != ErrorCode::kPeerLost || left == 0) throw;
      }
    }
  }
  static std::string path_of(const std::string& job) { return "/workspaces/w/experiments/e/jobs/" + job; }

  std::string token_;
  net::Endpoint endpoint_;
  std::unique_ptr<ServiceProcess> process_;
};

}  // namespace gyre::jobs::http
