// Whoever asks later who did what must find it, and find no secret.
#include "gyre/jobs/http/audit_log.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "gyre/base/file.h"
#include "gyre/jobs/http/interface_test_support.h"

namespace gyre::jobs::http {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class Audit : public InterfaceTest {
 protected:
  void SetUp() override {
    InterfaceTest::SetUp();
    server_.reset();
    net::http::ServerOptions options;
    options.endpoints = {net::parse_endpoint("tcp:127.0.0.1:0")};
    options.authenticate = make_authenticator(service_);
    log_ = std::make_unique<AuditLog>(file(), null_logger(), [] { return std::int64_t{1'500'000}; });
    options.audit = [this](const net::http::AuditEntry& entry) { log_->add(entry); };
    server_ = std::make_unique<net::http::Server>(std::move(options), make_router(service_));
  }

  std::filesystem::path file() const { return directory_ / "audit.log"; }
  std::vector<json> lines() const {
    std::vector<json> lines;
    std::ifstream stream(file());
    for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
    return lines;
  }

  std::unique_ptr<AuditLog> log_;
};

TEST_F(Audit, changes_and_refusals_are_in_it_with_who_from_where_what_and_the_outcome) {
  EXPECT_EQ(as_ada(Method::kPut, kJob, kJobFile).status, 201);
  EXPECT_EQ(as_ada(Method::kGet, kJob).status, 200);
  EXPECT_EQ(as_ada(Method::kPut, "/users/eve", "{}").status, 403);
  net::http::Client stranger = client("wrong-token");
  EXPECT_EQ(ask(stranger, Method::kGet, kJob).status, 401);
  const auto all = lines();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0]["time"], "1970-01-01T00:00:01.500000Z");
  EXPECT_EQ(all[0]["user"], "ada");
  EXPECT_THAT(all[0]["from"].get<std::string>(), HasSubstr("127.0.0.1"));
  EXPECT_EQ(all[0]["what"], "PUT /workspaces/w/experiments/e/jobs/j");
  EXPECT_EQ(all[0]["status"], 201);
  EXPECT_EQ(all[0]["outcome"], "ok");
  EXPECT_EQ(all[1]["outcome"], "NotAdministrator");
  EXPECT_EQ(all[2]["user"], "");
  EXPECT_EQ(all[2]["outcome"], "Unauthorized");
}

TEST_F(Audit, no_secret_is_in_it_and_nobody_else_reads_it) {
  EXPECT_EQ(as_ada(Method::kPut, kJob, kJobFile).status, 201);
  EXPECT_EQ(as_root(Method::kPut, "/users/eve", "{}").status, 201);
  EXPECT_EQ(as_ada(Method::kPut, std::string(kJob) + "?strict=do%20not%20tell", kJobFile).status, 400);
  const std::string text(as_text(read_file(file(), 1 << 20)));
  for (const char* secret : {"do not tell", "do%20not", "ada-token", "root-token", "token-of-eve", "echo hello"}) {
    EXPECT_THAT(text, Not(HasSubstr(secret)));
  }
  struct stat status{};
  ASSERT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
}

TEST_F(Audit, a_flood_of_refusals_is_counted_and_a_renamed_file_is_begun_again) {
  net::http::Client ada = client("ada-token");
  for (int i = 0; i < 300; ++i) ask(ada, Method::kPut, "/users/eve", "{}");
  const std::size_t written = lines().size();
  EXPECT_GE(written, 100U);
  EXPECT_LT(written, 150U);
  std::filesystem::rename(file(), file().string() + ".1");
  EXPECT_EQ(as_ada(Method::kPut, kJob, kJobFile).status, 201);
  const auto all = lines();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0]["refusalsOmittedBefore"].get<std::size_t>() + written, 300U);
}

}  // namespace
}  // namespace gyre::jobs::http
