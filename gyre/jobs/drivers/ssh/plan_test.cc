// What hosts are told, and what a cluster's options may be: without a host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"
#include "gyre/jobs/drivers/ssh/engine.h"
#include "gyre/jobs/drivers/ssh/internal/scripts.h"
#include "gyre/jobs/drivers/ssh/options.h"
#include "gyre/jobs/drivers/test_support.h"

namespace gyre::jobs::drivers::ssh {
namespace {

using testing::HasSubstr;

std::string refusal_of(const std::map<std::string, std::string>& options) {
  try {
    options_from(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "it was accepted";
}

TEST(SshOptionsOfAClusters, hosts_and_their_keys_are_read) {
  const SshOptions options =
      options_from({{"hosts", "a, ada@b ,c"}, {"host_keys", "a SHA256:xx,ada@b SHA256:yy"}, {"ssh_config", "/etc/s"}});
  EXPECT_THAT(options.hosts, testing::ElementsAre("a", "ada@b", "c"));
  EXPECT_EQ(options.host_keys.at("ada@b"), "SHA256:yy");
  EXPECT_FALSE(options.names_gyre);
  EXPECT_TRUE(options_from({{"hosts", "a"}, {"gyre", "/opt/gyre"}}).names_gyre);
}

// An option of ssh in a host's place would be obeyed.
TEST(SshOptionsOfAClusters, what_is_wrong_with_them_is_named) {
  EXPECT_THAT(refusal_of({}), HasSubstr("driverOptions.hosts of driver 'ssh' is missing"));
  EXPECT_THAT(refusal_of({{"hosts", "-oProxyCommand=x"}}), HasSubstr("not a host's name"));
  EXPECT_THAT(refusal_of({{"hosts", "a,b;reboot"}}), HasSubstr("not a host's name"));
  EXPECT_THAT(refusal_of({{"hosts", "a,a"}}), HasSubstr("has 'a' twice"));
  EXPECT_THAT(refusal_of({{"hosts", "a"}, {"host_keys", "a"}}), HasSubstr("HOST SHA256:"));
  EXPECT_THAT(refusal_of({{"hosts", "a"}, {"ssh_config", "here"}}), HasSubstr("absolute path"));
  EXPECT_THAT(refusal_of({{"hosts", "a"}, {"partition", "gpu"}}), HasSubstr("is not known; there are hosts"));
}

// Others can see the arguments and the environment of a host's processes; the key is on stdin, and then in a file.
TEST(SshScripts, the_key_is_in_a_here_document_and_names_are_quoted) {
  SshOptions options;
  options.job_user = "no'body";
  const Node node{"u-1-0", "/tmp/gyre-u-1", net::parse_endpoint("tcp:10.0.0.1:7000")};
  const std::string script = start_script(options, node, quoted("/opt/it's gyre"), "the key");
  EXPECT_THAT(script, HasSubstr("<<'GYRE_KEY' || exit 1\nthe key\nGYRE_KEY\n"));
  EXPECT_THAT(script, HasSubstr(R"(command -v '/opt/it'\''s gyre')"));
  EXPECT_THAT(script, HasSubstr(R"(--job-user 'no'\''body')"));
  EXPECT_THAT(script, HasSubstr("--service 'tcp:10.0.0.1:7000'"));
  EXPECT_THAT(end_script(node), HasSubstr("kill -TERM"));
}

NodeRequest a_request(const std::filesystem::path& folder, int nodes) {
  NodeRequest request;
  request.name = "gyre-u-1";
  request.order.attempt = "u-1";
  for (int node = 0; node < nodes; ++node)
    request.order.nodes.push_back({"n", "", 1, 0, "u-1-" + std::to_string(node)});
  request.service = {"s", net::parse_endpoint("tcp:10.0.0.1:7000")};
  request.folder = folder;
  return request;
}

// What people are shown must hold no secret, and what cannot be had must be refused at once.
TEST(SshEngines, describe_without_the_key_and_refuse_what_has_too_many_nodes) {
  const conformance::PublicFolder folder;
  SshOptions options = options_from({{"hosts", "a, b"}});
  options.folder = folder.path();
  SshEngine engine(options);
  EXPECT_EQ(engine.capacity().most_nodes, 2);
  const auto artifacts = engine.describe(a_request(folder.path(), 2));
  ASSERT_EQ(artifacts.size(), 2U);
  EXPECT_EQ(artifacts[1].name, "u-1-1.sh");
  EXPECT_THAT(artifacts[1].text, HasSubstr("(the attempt's key)"));
  EXPECT_THROW(engine.ask(a_request(folder.path(), 3)), Error);
  EXPECT_TRUE(engine.list().empty());
}

}  // namespace
}  // namespace gyre::jobs::drivers::ssh
