// Endpoints come from environment variables and from peers: every form must be read back as written, or refused.
#include "gyre/net/endpoint.h"

#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::net {
namespace {

TEST(Endpoint, the_accepted_forms_are_read_and_written_alike) {
  for (const char* text : {"unix:@gyre-1", "unix:/run/gyre.sock", "tcp:node7:4711", "tcp:10.0.0.1:0", "tcp:[::1]:65535",
                           "tcp:[fe80::1%eth0]:80"}) {
    EXPECT_EQ(to_string(parse_endpoint(text)), text);
  }
  const Endpoint endpoint = parse_endpoint("tcp:[::1]:80");
  EXPECT_EQ(endpoint.kind, Endpoint::Kind::kTcp);
  EXPECT_EQ(endpoint.host, "::1");
  EXPECT_EQ(endpoint.port, 80);
  EXPECT_EQ(parse_endpoint("unix:@x").host, "@x");
}

TEST(Endpoint, everything_else_is_refused_with_the_text_and_the_forms) {
  const std::string long_name(108, 'x');
  const std::string zero_name = std::string("unix:@a") + '\0' + "b";
  for (const std::string& text :
       {std::string(), std::string("unix:"), std::string("unix:@"), std::string("unix:name"), "unix:@" + long_name,
        zero_name, std::string("tcp:"), std::string("tcp:host"), std::string("tcp::80"), std::string("tcp:host:"),
        std::string("tcp:host:65536"), std::string("tcp:host:-1"), std::string("tcp:host:8x"),
        std::string("tcp:::1:80"), std::string("tcp:a b:80"), "tcp:" + std::string(300, 'h') + ":1",
        std::string("http://x:80"), std::string("4711")}) {
    try {
      parse_endpoint(text);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("unix:@NAME"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace gyre::net
