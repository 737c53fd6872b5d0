// Which handler answers which request, and what a client hears when none does.
#include "gyre/net/http/router.h"

#include <gtest/gtest.h>

namespace gyre::net::http {
namespace {

using Parameters = std::vector<std::pair<std::string, std::string>>;

Router make_router() {
  const Handler handler = [](Request&) { return Response(); };
  Router router;
  router.add({.method = Method::kGet, .pattern = "/", .handler = handler});
  router.add({.method = Method::kGet, .pattern = "/jobs", .handler = handler});
  router.add({.method = Method::kGet, .pattern = "/jobs/{job}", .handler = handler});
  router.add({.method = Method::kPut, .pattern = "/jobs/{job}", .handler = handler});
  router.add({.method = Method::kGet, .pattern = "/jobs/{job}/files/{id}/{path...}", .handler = handler});
  return router;
}

TEST(Router, named_segments_reach_the_handler) {
  const Router router = make_router();
  const auto match = router.find(Method::kGet, parse_target("/jobs/a%20b/files/stdouterr/x/y.txt"));
  ASSERT_NE(match.route, nullptr);
  EXPECT_EQ(match.parameters, (Parameters{{"job", "a b"}, {"id", "stdouterr"}, {"path", "x/y.txt"}}));
  EXPECT_EQ(router.find(Method::kPut, parse_target("/jobs/j")).parameters, (Parameters{{"job", "j"}}));
  EXPECT_EQ(router.find(Method::kGet, parse_target("/")).route, &router.routes()[0]);
}

TEST(Router, head_uses_the_route_of_get) {
  const Router router = make_router();
  EXPECT_EQ(router.find(Method::kHead, parse_target("/jobs")).route, &router.routes()[1]);
}

TEST(Router, a_path_that_is_not_there_allows_nothing) {
  const Router router = make_router();
  for (const char* path : {"/job", "/jobs/j/files", "/jobs/j/files/stdouterr", "/Jobs"}) {
    const auto match = router.find(Method::kGet, parse_target(path));
    EXPECT_EQ(match.route, nullptr) << path;
    EXPECT_TRUE(match.allowed.empty()) << path;
  }
}

TEST(Router, another_method_hears_which_ones_there_are) {
  const Router router = make_router();
  const auto match = router.find(Method::kDelete, parse_target("/jobs/j"));
  EXPECT_EQ(match.route, nullptr);
  EXPECT_EQ(match.allowed, (std::vector<Method>{Method::kGet, Method::kHead, Method::kPut}));
  EXPECT_EQ(router.find(Method::kOther, parse_target("/jobs")).allowed.size(), 2U);
}

}  // namespace
}  // namespace gyre::net::http
