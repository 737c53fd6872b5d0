// A token must not go to whoever has taken the server's place: TLS, and the fingerprint that the client was given.
#include "gyre/net/http/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "gyre/base/error.h"
#include "gyre/net/http/client.h"
#include "gyre/net/http/error.h"
#include "gyre/net/http/test_support.h"

namespace gyre::net::http {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CertificateTest : public testing::Test {
 protected:
  CertificateTest() {
    std::string pattern = (fs::temp_directory_path() / "gyre_tls_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~CertificateTest() override { fs::remove_all(folder_); }

  ServerOptions tls_options() const {
    ServerOptions options = loopback_options();
    options.certificate = certificate_in(folder_ / "tls.pem");
    options.authenticate = [](const Credentials& credentials) {
      return credentials.token == "right" ? std::optional(Identity{"ada"}) : std::nullopt;
    };
    return options;
  }
  static Router router() {
    Router router;
    router.add({.method = Method::kPut,
                .pattern = "/echo",
                .handler = [](Request& request) { return Response{.body = request.body}; },
                .body_bytes = std::uint64_t{8} << 20});
    router.add({.method = Method::kGet, .pattern = "/", .handler = [](Request&) { return Response{.body = "here"}; }});
    return router;
  }
  static std::string error_of(Client& client) {
    try {
      return client.send({.target = parse_target("/")}).body;
    } catch (const Error& error) {
      return error.what();
    }
  }

  fs::path folder_;
};

TEST_F(CertificateTest, it_is_made_once_and_for_its_user_alone) {
  const Certificate made = certificate_in(folder_ / "tls.pem");
  EXPECT_TRUE(is_fingerprint(made.fingerprint));
  EXPECT_EQ(certificate_in(folder_ / "tls.pem").fingerprint, made.fingerprint);
  EXPECT_NE(certificate_in(folder_ / "other.pem").fingerprint, made.fingerprint);
  struct stat status{};
  ASSERT_EQ(::stat((folder_ / "tls.pem").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  ::chmod((folder_ / "tls.pem").c_str(), 0644);
  EXPECT_THROW(certificate_in(folder_ / "tls.pem"), Error);
  std::ofstream(folder_ / "none.pem") << "nothing";
  ::chmod((folder_ / "none.pem").c_str(), 0600);
  EXPECT_THROW(certificate_in(folder_ / "none.pem"), Error);
}

TEST_F(CertificateTest, requests_and_large_bodies_go_through_an_encrypted_connection) {
  const ServerOptions options = tls_options();
  const std::string fingerprint = options.certificate->fingerprint;
  const Server server(options, router());
  Client client({.endpoint = server.endpoints()[0], .token = "right", .fingerprint = fingerprint});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(error_of(client), "here");  // On one connection.
  std::string body(std::size_t{3} << 20, 'x');
  for (std::size_t i = 0; i < body.size(); i += 1'000) body[i] = static_cast<char>('a' + i % 26);
  EXPECT_EQ(client.send({.method = Method::kPut, .target = parse_target("/echo"), .body = body}).body, body);
  EXPECT_EQ(error_of(client), "here");
  Client wrong({.endpoint = server.endpoints()[0], .token = "wrong", .fingerprint = fingerprint});
  EXPECT_THAT(error_of(wrong), HasSubstr("the token is not valid"));
}

TEST_F(CertificateTest, a_server_with_another_fingerprint_gets_no_token) {
  std::atomic<int> requests = 0;
  ServerOptions options = tls_options();
  options.authenticate = [&](const Credentials&) {
    ++requests;
    return std::optional(Identity{"ada"});
  };
  const Server squatter(options, router());
  const std::string expected = certificate_in(folder_ / "other.pem").fingerprint;
  Client client({.endpoint = squatter.endpoints()[0], .token = "right", .fingerprint = expected});
  EXPECT_THAT(error_of(client), AllOf(HasSubstr("is not the one that is meant"), HasSubstr("nothing was sent")));
  const Server plain(loopback_options(), router());
  Client to_plain({.endpoint = plain.endpoints()[0], .token = "right", .fingerprint = expected});
  EXPECT_THAT(error_of(to_plain), HasSubstr("does not speak TLS 1.3"));
  EXPECT_EQ(requests, 0);
}

TEST_F(CertificateTest, what_is_not_tls_gets_no_answer_and_disturbs_nobody) {
  const ServerOptions options = tls_options();
  const Server server(options, router());
  RawClient raw(server.endpoints()[0]);
  raw.write(get("/", "Authorization: Bearer right\r\n"));
  EXPECT_EQ(raw.read_all().find("here"), std::string::npos);
  Client client({.endpoint = server.endpoints()[0], .token = "right", .fingerprint = options.certificate->fingerprint});
  EXPECT_EQ(error_of(client), "here");
}

}  // namespace
}  // namespace gyre::net::http
