// Clients decide by the error they get; what goes wrong inside must not be told to them.
#include "gyre/net/http/error.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace gyre::net::http {
namespace {

using nlohmann::json;

TEST(HttpError, has_the_documented_body) {
  HttpError error(409, "JobNotFinished", "job 'j' is running", "j", {{"Detail", "started", "startTime"}});
  error.headers.set("Retry-After", "5");
  const Response response = error_response(error);
  EXPECT_EQ(response.status, 409);
  EXPECT_EQ(*response.headers.find("retry-after"), "5");
  EXPECT_EQ(json::parse(response.body), json::parse(R"({"error": {
    "code": "JobNotFinished", "message": "job 'j' is running", "target": "j",
    "details": [{"code": "Detail", "message": "started", "target": "startTime"}]}})"));
  EXPECT_TRUE(json::parse(error_response(HttpError(404, "X", "y")).body)["error"]["target"].is_null());
}

TEST(HttpError, quotes_bytes_that_are_not_text) {
  const Response response = error_response(HttpError(400, "Bad", "it says '\xff'"));
  EXPECT_TRUE(json::accept(response.body));
}

TEST(HttpError, a_client_reads_what_a_server_wrote) {
  const HttpError sent(404, "JobNotFound", "there is no job 'j'", "j", {{"a", "b", ""}});
  const HttpError read = parse_error_body(404, error_response(sent).body);
  EXPECT_EQ(read.status(), 404);
  EXPECT_EQ(read.name(), "JobNotFound");
  EXPECT_STREQ(read.what(), "there is no job 'j'");
  EXPECT_EQ(read.target(), "j");
  ASSERT_EQ(read.details().size(), 1U);
  EXPECT_EQ(read.details()[0].message, "b");
  EXPECT_EQ(read.code(), ErrorCode::kNotFound);
}

TEST(HttpError, anything_else_in_a_body_is_quoted_and_cut) {
  for (const std::string body : {"", "<html>", "{}", "[1]", R"({"error": 7})"}) {
    EXPECT_EQ(parse_error_body(502, body).name(), "UnexpectedResponse") << body;
  }
  EXPECT_LT(std::string(parse_error_body(502, std::string(5000, 'x')).what()).size(), 300U);
}

TEST(HttpError, failures_of_the_server_itself_keep_their_cause_to_the_log) {
  const std::string secret = "/var/lib/secret.db is damaged";
  for (const HttpError& error :
       {as_http_error(Error(ErrorCode::kCorruptData, secret)), as_http_error(Error(ErrorCode::kIo, secret)),
        as_http_error(std::runtime_error(secret))}) {
    EXPECT_EQ(error.status(), 500);
    EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos);
  }
  EXPECT_EQ(as_http_error(Error(ErrorCode::kInvalidArgument, "bad")).status(), 400);
  EXPECT_EQ(as_http_error(Error(ErrorCode::kNotFound, "none")).status(), 404);
  EXPECT_EQ(as_http_error(HttpError(409, "A", "b")).status(), 409);
}

TEST(Headers, a_value_cannot_begin_another_header) {
  Headers headers;
  EXPECT_THROW(headers.add("A", "b\r\nC: d"), Error);
  EXPECT_THROW(headers.add("A", std::string("b\0c", 3)), Error);
  EXPECT_THROW(headers.add("A:", "b"), Error);
  EXPECT_THROW(headers.add("", "b"), Error);
  headers.add("Content-Type", "a\tb");
  EXPECT_EQ(*headers.find("content-TYPE"), "a\tb");
  headers.set("content-type", "c");
  EXPECT_EQ(headers.count("Content-Type"), 1U);
}

}  // namespace
}  // namespace gyre::net::http
