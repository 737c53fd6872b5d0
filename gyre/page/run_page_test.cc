#include "gyre/page/run_page.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/metrics/file.h"
#include "gyre/net/http/test_support.h"

namespace gyre::page {
namespace {

namespace fs = std::filesystem;
using net::http::body_of;
using net::http::RawClient;

class RunPageTest : public testing::Test {
 protected:
  RunPageTest() : folder_(fs::path(testing::TempDir()) / ("run_page_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    options_.name = "digits";
    options_.metrics = folder_ / "metrics";
    options_.logs = folder_;
    options_.remove_at_end = folder_;
    options_.farewell = std::chrono::milliseconds(50);
    options_.files = {.script = "script();", .style = "p{}"};
  }
  ~RunPageTest() override { fs::remove_all(folder_); }

  static net::Endpoint endpoint_of(const std::string& link) {
    const std::string rest = link.substr(std::string("http://127.0.0.1:").size());
    return net::parse_endpoint("tcp:127.0.0.1:" + rest.substr(0, rest.find('/')));
  }
  static std::string path_of(const std::string& link) { return link.substr(link.find("/open/")); }

  /// The answer to one request on a connection of its own.
  std::string get(const RunPage& page, const std::string& path, const std::string& headers) const {
    RawClient client(endpoint_of(page.link()));
    client.write("GET " + place_ + path + " HTTP/1.1\r\nHost: 127.0.0.1:1\r\nConnection: close\r\n" + headers + "\r\n");
    return client.read_all();
  }
  /// A viewer that has got the end of a job which ended with exit code 3.
  std::unique_ptr<RawClient> follow_to_the_end(RunPage& page, const std::string& cookie) const {
    auto viewer = std::make_unique<RawClient>(endpoint_of(page.link()));
    viewer->write("GET " + place_ + "/api/live HTTP/1.1\r\nHost: localhost\r\n" + cookie + "\r\n");
    viewer->read_until("event: job");
    page.tell({.kind = News::Kind::kFinished, .code = 3});
    page.finish();
    viewer->read_until("\"exit_code\":3");
    return viewer;
  }
  /// The cookie; `place_` becomes the secret part of the address.
  std::string enter(const RunPage& page) {
    RawClient looks(endpoint_of(page.link()));  // As programs do that show what is behind a link.
    looks.write("HEAD " + path_of(page.link()) + " HTTP/1.1\r\nHost: 127.0.0.1:1\r\nConnection: close\r\n\r\n");
    EXPECT_NE(looks.read_all().find("200 OK"), std::string::npos);
    const std::string answer = get(page, path_of(page.link()), "");
    const std::size_t begin = answer.find("Set-Cookie: ") + 12;
    const std::size_t place = answer.find("Path=/", begin) + 5;
    place_ = answer.substr(place, answer.find(';', place) - place);
    return "Cookie: " + answer.substr(begin, answer.find(';', begin) - begin) + "\r\n";
  }

  fs::path folder_;
  RunPageOptions options_;
  std::string place_;
};

// The page is what a person has while the job runs: ranks, charts and logs as they grow, and the end.
TEST_F(RunPageTest, a_viewer_follows_a_job_to_its_end) {
  auto page = std::make_unique<RunPage>(options_);
  const std::string cookie = enter(*page);
  EXPECT_NE(get(*page, "/page.js", cookie).find("script();"), std::string::npos);
  EXPECT_NE(get(*page, "/page", cookie).find("Content-Security-Policy: default-src 'none'; script-src 'self'"),
            std::string::npos);

  RawClient viewer(endpoint_of(page->link()));
  viewer.write("GET " + place_ + "/api/live HTTP/1.1\r\nHost: localhost\r\n" + cookie + "\r\n");
  viewer.read_until("event: job");
  std::ofstream(folder_ / "rank-0.log") << "first line\n";
  metrics::FileWriter metrics(folder_ / "metrics");
  page->tell({.kind = News::Kind::kStarted, .rank = 0, .process = 4711, .text = "default"});
  const metrics::Sample sample{.name = "loss", .rank = 0, .step = 5, .time_us = 1, .value = 0.25};
  metrics.add(std::span(&sample, 1));
  std::string seen;  // In an order that the clock decides.
  for (const char* fact : {"\"process\":4711", "event: logs\ndata: {\"0\":11}", "\"step\":5"}) {
    while (seen.find(fact) == std::string::npos) seen += viewer.read_until("\n\n");
  }
  EXPECT_NE(get(*page, "/api/chart?name=loss", cookie).find("\"value\":[0.25]"), std::string::npos);
  const std::string two = body_of(get(*page, "/api/charts?names=%5B%22loss%22,%22none%22%5D", cookie));
  EXPECT_EQ(two, "[" + body_of(get(*page, "/api/chart?name=loss", cookie)) + "," +
                     body_of(get(*page, "/api/chart?name=none", cookie)) + "]");
  EXPECT_NE(get(*page, "/api/ranks/0/log", cookie + "Range: bytes=6-\r\n").find("206 Partial Content"),
            std::string::npos);
  EXPECT_NE(get(*page, "/api/ranks/7/log", cookie).find("LogNotFound"), std::string::npos);

  page->tell({.kind = News::Kind::kFinished, .code = 3});
  page->finish();
  viewer.read_until("\"exit_code\":3");
  page.reset();  // When the viewer's time is over.
  const std::string rest = viewer.read_all();
  EXPECT_TRUE(rest.ends_with("0\r\n\r\n")) << "the stream was cut";
  EXPECT_FALSE(fs::exists(folder_)) << "what was the page's alone has stayed";
}

// While its program is still being loaded, the step of the start before would be taken for one of this start.
TEST_F(RunPageTest, a_rank_that_starts_again_has_no_step_yet) {
  RunPage page(options_);
  const std::string cookie = enter(page);
  RawClient viewer(endpoint_of(page.link()));
  viewer.write("GET " + place_ + "/api/live HTTP/1.1\r\nHost: localhost\r\n" + cookie + "\r\n");
  metrics::FileWriter metrics(folder_ / "metrics");
  const News started{.kind = News::Kind::kStarted, .rank = 0, .process = 4711, .text = "default"};
  page.tell(started);
  const metrics::Sample sample{.name = "loss", .rank = 0, .step = 5, .time_us = 1, .value = 0.25};
  metrics.add(std::span(&sample, 1));
  viewer.read_until("\"step\":5");
  metrics.event(to_line(started));
  EXPECT_NE(viewer.read_until("\"step\":null").find("\"phase\":\"starting\""), std::string::npos);
}

// A viewer cannot tell a job that does nothing from a server that is stopped, or a network that is gone.
TEST_F(RunPageTest, a_server_with_nothing_new_says_that_it_is_there) {
  RunPage page(options_);
  const std::string cookie = enter(page);
  RawClient viewer(endpoint_of(page.link()));
  viewer.write("GET " + place_ + "/api/live HTTP/1.1\r\nHost: localhost\r\n" + cookie + "\r\n");
  viewer.read_until("event: alive");
  viewer.read_until("event: alive");
}

// The end of a job is what people look for, and a browser needs some requests for it.
TEST_F(RunPageTest, a_viewer_has_time_to_fetch_the_end_and_ends_the_page_by_leaving) {
  options_.farewell = std::chrono::minutes(10);
  RunPage page(options_);
  const std::string cookie = enter(page);
  auto viewer = follow_to_the_end(page, cookie);
  EXPECT_NE(get(page, "/api/job", cookie).find("\"exit_code\":3"), std::string::npos);
  EXPECT_FALSE(page.has_ended());
  viewer.reset();
  while (!page.has_ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(fs::exists(folder_));
}

// Ctrl-C.
TEST_F(RunPageTest, a_page_that_is_given_up_ends_at_once_and_leaves_nothing) {
  options_.farewell = std::chrono::minutes(10);
  {
    RunPage page(options_);
    const auto viewer = follow_to_the_end(page, enter(page));
    EXPECT_FALSE(page.has_ended());
    page.give_up();
    EXPECT_TRUE(page.has_ended());
  }
  EXPECT_FALSE(fs::exists(folder_));
}

// Each wrong request gets one clear answer, and none of them ends the page.
TEST_F(RunPageTest, wrong_requests_are_refused_in_words) {
  const RunPage page(options_);
  EXPECT_NE(get(page, "/", "").find("open the link that `gyre` has printed"), std::string::npos);
  EXPECT_NE(get(page, "/x/api/job", "").find("\"code\":\"NoCookie\""), std::string::npos);
  EXPECT_NE(get(page, "/x/page", "").find("open the link that `gyre` has printed"), std::string::npos);
  const std::string cookie = enter(page);
  EXPECT_NE(get(page, "/api/job", "").find("\"code\":\"NoCookie\""), std::string::npos);
  const std::string place = std::exchange(place_, "");
  EXPECT_NE(get(page, path_of(page.link()), "").find("403 Forbidden"), std::string::npos);
  EXPECT_NE(get(page, "/x/api/job", cookie).find("\"code\":\"NoCookie\""), std::string::npos);
  place_ = place;
  EXPECT_NE(get(page, "/api/ranks/..%2f..%2fetc/log", cookie).find("400 Bad Request"), std::string::npos);
  EXPECT_NE(get(page, "/api/ranks/x/log", cookie).find("404 Not Found"), std::string::npos);
  EXPECT_NE(get(page, "/api/chart", cookie).find("MissingParameter"), std::string::npos);
  EXPECT_NE(get(page, "/api/chart?name=a&from=x", cookie).find("InvalidParameter"), std::string::npos);
  for (const char* names : {"", "?names=", "?names=loss", "?names=%22loss%22", "?names=%5B1%5D", "?names=%5B%22%ff"}) {
    const std::string refused = get(page, std::string("/api/charts") + names, cookie);
    EXPECT_NE(refused.find("400 Bad Request"), std::string::npos) << names << refused;
  }
  EXPECT_NE(get(page, "/api/job", cookie + "X: " + std::string(20'000, 'x') + "\r\n").find("431 "), std::string::npos);
  {
    RawClient leaves_at_once(endpoint_of(page.link()));
  }
  EXPECT_NE(get(page, "/api/job", cookie).find("200 OK"), std::string::npos);
}

// Two pages of one machine are two: neither the port nor the cookie of the other.
TEST_F(RunPageTest, a_port_that_is_taken_is_said_at_the_start) {
  options_.remove_at_end.reset();
  const RunPage page(options_);
  options_.port = endpoint_of(page.link()).port;
  try {
    const RunPage second(options_);
    ADD_FAILURE() << "two pages have one port";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(options_.port)), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("in use"), std::string::npos) << error.what();
  }
}

// The launcher trains; a page that has been killed must not end or delay it.
TEST_F(RunPageTest, news_to_a_page_that_is_gone_are_lost) {
  auto page = std::make_unique<RunPage>(options_);
  const pid_t process = page->process();
  ::kill(process, SIGKILL);
  for (int i = 0; i < 50'000; ++i) page->tell({.kind = News::Kind::kStarted, .rank = 0, .text = "default"});
  page.reset();
  EXPECT_EQ(::kill(process, 0), -1) << "it has not been reaped";
  EXPECT_FALSE(fs::exists(folder_)) << "what was the page's alone has stayed";
}

}  // namespace
}  // namespace gyre::page
