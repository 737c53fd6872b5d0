#include "gyre/page/access.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "gyre/net/http/error.h"

namespace gyre::page {
namespace {

using net::http::HttpError;
using net::http::Request;
using net::http::Response;

Request request_to(const std::string& path, net::http::Headers headers) {
  Request request;
  request.target = net::http::parse_target(path);
  request.headers = std::move(headers);
  return request;
}

/// The place in "Path=/PLACE".
std::string place_of(const Response& response) {
  const std::string* cookie = response.headers.find("Set-Cookie");
  if (cookie == nullptr) return "";
  const std::size_t begin = cookie->find("Path=/") + 6;
  return cookie->substr(begin, cookie->find(';', begin) - begin);
}

/// What a browser has of a response's cookie.
std::string cookie_of(const Response& response) {
  const std::string* cookie = response.headers.find("Set-Cookie");
  return cookie == nullptr ? "" : cookie->substr(0, cookie->find(';'));
}

class PageAccess : public testing::Test {
 protected:
  Response follow(const std::string& link, const std::string& host = "127.0.0.1:80") {
    Request request = request_to(link, {{"Host", host}, {"Sec-Fetch-Site", "cross-site"}});
    request.parameters = {{"secret", link.substr(std::string("/open/").size())}};
    const Response response = entry(request);
    if (const std::string place = place_of(response); !place.empty()) place_ = place;
    return response;
  }
  Response entry(Request& request) {
    net::http::Router router;
    access_.add_entry_routes(router);
    return router.find(request.method, request.target).route->handler(request);
  }
  /// The status that a guarded route answers with.
  int ask(net::http::Headers headers) { return ask_at(place_, std::move(headers)); }
  int ask_at(const std::string& place, net::http::Headers headers) {
    Request request = request_to("/" + place + "/api/job", std::move(headers));
    request.parameters = {{"place", place}};
    try {
      return access_.guarded([](Request&) { return Response(); })(request).status;
    } catch (const HttpError& error) {
      return error.status();
    }
  }

  Access access_{"gyre-page"};
  std::string place_ = "none";
};

// Whoever reads the terminal later, or a history of the browser, must not get in.
TEST_F(PageAccess, a_link_works_once_and_leaves_a_cookie) {
  const std::string link = access_.new_link();
  const Response first = follow(link);
  EXPECT_EQ(first.status, 200);
  EXPECT_NE(first.headers.find("Set-Cookie")->find("; HttpOnly; SameSite=Strict"), std::string::npos);
  EXPECT_EQ(ask({{"Host", "localhost:8000"}, {"Cookie", "a=b; " + cookie_of(first)}}), 200);

  const Response second = follow(link);
  EXPECT_EQ(second.status, 403);
  EXPECT_EQ(cookie_of(second), "");
}

TEST_F(PageAccess, a_browser_that_fetches_ahead_uses_no_link_up) {
  const std::string link = access_.new_link();
  Request ahead = request_to(link, {{"Host", "127.0.0.1:80"}, {"Sec-Purpose", "prefetch;prerender"}});
  ahead.parameters = {{"secret", link.substr(std::string("/open/").size())}};
  EXPECT_THROW(entry(ahead), HttpError);
  EXPECT_EQ(follow(link).status, 200);
}

// Programs that check links, as those of chats and mail do.
TEST_F(PageAccess, a_head_request_uses_no_link_up) {
  const std::string link = access_.new_link();
  Request head = request_to(link, {{"Host", "127.0.0.1:80"}});
  head.method = net::http::Method::kHead;
  head.parameters = {{"secret", link.substr(std::string("/open/").size())}};
  const Response answer = entry(head);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.find("Set-Cookie"), nullptr);
  EXPECT_EQ(follow(link).status, 200);
}

// The job is its user's alone, though every process of the machine reaches the port.
TEST_F(PageAccess, nothing_is_answered_without_the_cookie) {
  const std::string cookie = cookie_of(follow(access_.new_link()));
  EXPECT_EQ(ask({{"Host", "127.0.0.1:80"}}), 401);
  EXPECT_EQ(ask({{"Host", "127.0.0.1:80"}, {"Cookie", "gyre-page="}}), 401);
  EXPECT_EQ(ask({{"Host", "127.0.0.1:80"}, {"Cookie", cookie.substr(0, cookie.size() - 1) + "x"}}), 401);
  EXPECT_EQ(ask({{"Host", "127.0.0.1:80"}, {"Cookie", cookie + "x"}}), 401);
  EXPECT_EQ(ask({{"Host", "127.0.0.1:80"}, {"Cookie", "x" + cookie}}), 401);
}

// Browsers send a cookie to every port of a host, and someone else may listen at one: without the secret part of the
// address, which they do not learn, it opens nothing; nor does the address without the cookie, from a history.
TEST_F(PageAccess, the_cookie_is_of_no_use_without_the_pages_address) {
  const Response first = follow(access_.new_link());
  const std::string cookie = cookie_of(first);
  ASSERT_EQ(place_.size(), 48U);
  EXPECT_EQ(cookie.find(place_), std::string::npos);
  EXPECT_NE(first.body.find("url=/" + place_ + "/page\""), std::string::npos) << first.body;
  EXPECT_EQ(ask({{"Host", "127.0.0.1:80"}, {"Cookie", cookie}}), 200);
  for (const std::string& place : {std::string("api"), std::string(48, '0'), place_ + "0", cookie.substr(10)}) {
    EXPECT_EQ(ask_at(place, {{"Host", "127.0.0.1:80"}, {"Cookie", cookie}}), 401) << place;
  }
  EXPECT_EQ(ask({{"Host", "127.0.0.1:80"}}), 401);
}

// Another site's page may send requests with the cookie, or call this address by a name of its own.
TEST_F(PageAccess, requests_that_other_sites_cause_are_refused) {
  const std::string cookie = cookie_of(follow(access_.new_link()));
  const auto with = [&](net::http::Headers headers) {
    headers.add("Cookie", cookie);
    return ask(std::move(headers));
  };
  EXPECT_EQ(with({{"Host", "[::1]:80"}, {"Origin", "http://[::1]:80"}, {"Sec-Fetch-Site", "same-origin"}}), 200);
  EXPECT_EQ(with({{"Host", "127.0.0.1:80"}, {"Sec-Fetch-Site", "cross-site"}}), 403);
  EXPECT_EQ(with({{"Host", "127.0.0.1:80"}, {"Sec-Fetch-Site", "same-site"}}), 403);
  EXPECT_EQ(with({{"Host", "127.0.0.1:80"}, {"Origin", "http://evil.example"}}), 403);
  EXPECT_EQ(with({{"Host", "127.0.0.1:80"}, {"Origin", "null"}}), 403);
  EXPECT_EQ(with({{"Host", "evil.example"}}), 403);
  EXPECT_EQ(with({{"Host", "127.0.0.1.evil.example:80"}}), 403);
  EXPECT_EQ(with({{"Host", "127.0.0.1:80@evil.example"}}), 403);
  EXPECT_EQ(with({{"Host", "[::1]evil.example"}}), 403);
  EXPECT_EQ(with({}), 403);
  EXPECT_THROW(follow(access_.new_link(), "evil.example"), HttpError);
}

}  // namespace
}  // namespace gyre::page
