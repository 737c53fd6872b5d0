#include "gyre/page/forward.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "gyre/net/http/error.h"
#include "gyre/net/http/file_response.h"
#include "gyre/net/http/server.h"

namespace gyre::page {
namespace {

using net::http::Client;
using net::http::HttpError;
using net::http::Method;
using net::http::Request;
using net::http::Router;
using net::http::Server;

/// A server with a file and a route that says what it was asked, and a door to it.
class PageForward : public testing::Test {
 protected:
  PageForward()
      : path_(std::filesystem::path(testing::TempDir()) / ("forward_" + std::to_string(::getpid()))),
        server_(Server({.endpoints = {net::parse_endpoint("tcp:127.0.0.1:0")}}, routes_of_the_server())) {
    Router router;
    add_forwarding(router, "/service", {.endpoint = server_.endpoints().front(), .token = "the user's"},
                   [](net::http::Handler handler) { return handler; });
    door_.emplace(net::http::ServerOptions{.endpoints = {net::parse_endpoint("tcp:127.0.0.1:0")}}, std::move(router));
  }
  ~PageForward() override { std::filesystem::remove(path_); }

  Router routes_of_the_server() {
    Router router;
    for (const Method method : {Method::kGet, Method::kPut}) {
      router.add({.method = method,
                  .pattern = "/a b/{name}",
                  .handler =
                      [](Request& request) {
                        const std::string* token = request.headers.find("Authorization");
                        const std::string* cookie = request.headers.find("Cookie");
                        return net::http::json_response(200, request.parameter("name") + "|" + request.body + "|" +
                                                                 (token ? *token : "") + "|" + (cookie ? *cookie : "") +
                                                                 "|" + *request.query("state"));
                      },
                  .query = {"state"},
                  .body_bytes = 100});
    }
    router.add({.method = Method::kGet, .pattern = "/file", .handler = [this](Request& request) {
                  return net::http::file_response(request, UniqueFd(::open(path_.c_str(), O_RDONLY)), "text/plain");
                }});
    return router;
  }

  net::http::ClientResponse ask(const std::string& target, Method method = Method::kGet, std::string body = {},
                                net::http::Headers headers = {}) {
    return Client({.endpoint = door_->endpoints().front()})
        .send({.method = method,
               .target = net::http::parse_target(target),
               .headers = std::move(headers),
               .body = std::move(body)});
  }
  int refusal(const std::string& target, net::http::Headers headers = {}) {
    try {
      return ask(target, Method::kGet, {}, std::move(headers)).status;
    } catch (const HttpError& error) {
      return error.status();
    }
  }

  std::filesystem::path path_;
  Server server_;
  std::optional<Server> door_;
};

// The browser acts as the user, and nothing that is the browser's own reaches the server.
TEST_F(PageForward, requests_are_passed_on_as_the_users) {
  EXPECT_EQ(ask("/service/a%20b/x?state=y", Method::kGet, {}, {{"Cookie", "secret=1"}}).body,
            "x||Bearer the user's||y");
  EXPECT_EQ(ask("/service/a%20b/x?state=y", Method::kPut, "body").body, "x|body|Bearer the user's||y");
  EXPECT_EQ(refusal("/service/nothing"), 404);
  EXPECT_EQ(refusal("/service/file?follow=true"), 400);
  EXPECT_EQ(refusal("/service/file", {{"Accept", "text/event-stream"}}), 400);
}

// Outputs are larger than memory.
TEST_F(PageForward, files_come_whole_and_in_ranges) {
  std::string content(3'000'001, 'x');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>('a' + i % 23);
  std::ofstream(path_) << content;
  const auto whole = ask("/service/file");
  EXPECT_EQ(whole.status, 200);
  EXPECT_TRUE(whole.body == content) << whole.body.size();
  const auto part = ask("/service/file", Method::kGet, {}, {{"Range", "bytes=2999999-"}});
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, content.substr(2'999'999));
}

// The page says that the server is away; it must not think that the job is.
TEST_F(PageForward, a_server_that_is_away_is_said) {
  server_.stop(std::chrono::milliseconds(0));
  Router router;
  add_forwarding(router, "/service",
                 {.endpoint = server_.endpoints().front(), .connect = std::chrono::milliseconds(50)},
                 [](net::http::Handler handler) { return handler; });
  door_.emplace(net::http::ServerOptions{.endpoints = {net::parse_endpoint("tcp:127.0.0.1:0")}}, std::move(router));
  EXPECT_EQ(refusal("/service/file"), 502);
}

}  // namespace
}  // namespace gyre::page
