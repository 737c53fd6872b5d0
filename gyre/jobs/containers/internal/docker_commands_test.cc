// docker's daemon is the machine's root, and so is a container's first process for a moment.
#include "gyre/jobs/containers/internal/docker_commands.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/jobs/containers/internal/podman_commands.h"
#include "gyre/jobs/containers/internal/podman_words.h"

namespace gyre::jobs::containers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(DockerCommands, a_container_has_its_accounts_its_program_and_no_folder_of_the_machine) {
  Container container;
  container.name = "gyre-a-n";
  container.root = {.user = 1000, .group = 100, .groups = {}};
  container.places = {{"/share", "/share"}};
  container.program = {{"/b", "/c", true}};
  container.command = {"/.gyre/gyre-node", "hold"};
  const std::string words =
      fmt::format("{}", fmt::join(internal::docker_run_arguments(container, "sha256:2", {"PATH=/bin", "A=b c"}), "|"));
  EXPECT_THAT(words, HasSubstr("|--env|image.PATH=/bin|--env|image.A=b c|"));
  EXPECT_THAT(words, HasSubstr("|--mount|type=bind,src=/b,dst=/c,readonly|"));
  EXPECT_THAT(words, Not(HasSubstr("/share")));
  EXPECT_THAT(words, Not(HasSubstr("privileged")));
  EXPECT_THAT(words, HasSubstr("|--mount|type=bind,src=/dev/null,dst=/etc/ld.so.preload,readonly|"));
  EXPECT_THAT(words, HasSubstr(fmt::format("|--entrypoint|/.gyre/lib/ld.so|sha256:2|--inhibit-cache|--library-path|"
                                           "/.gyre/lib|/.gyre/gyre-node|hold|--root|1000:100:{}:65535",
                                           internal::first_subordinate(1000))));
}

// An agent that is killed while it copies leaves it; the next one on the node removes what has the node's label.
TEST(DockerCommands, a_container_that_is_only_read_has_the_nodes_label) {
  Container container;
  container.image_id = "sha256:1";
  container.labels = {{"gyre.node", "n /nodes/n"}};
  container.command = {"/x", "hold"};
  EXPECT_THAT(
      internal::docker_create_arguments(container),
      ElementsAre("create", "--network", "none", "--label", "gyre.node=n /nodes/n", "--entrypoint", "/x", "sha256:1"));
}

TEST(DockerCommands, accounts_of_an_image_are_nobodys_but_its_root) {
  const std::uint32_t first = internal::first_subordinate(1000);
  EXPECT_EQ(internal::account_outside(0, 1000, 1000), 1000);
  EXPECT_EQ(internal::account_outside(1, 1000, 1000), first);
  EXPECT_EQ(internal::account_outside(0, 100, 1000), 100);
  EXPECT_EQ(internal::account_outside(65'535, 100, 1000), first + 65'534);
  EXPECT_EQ(internal::account_outside(1'000'000, 100, 1000), first + 65'534);
}

// As docker 20.10 prints them.
TEST(DockerCommands, what_docker_says_of_an_image_is_understood) {
  const ImageName name{.image = "team/train:1", .server = "reg.example", .user = {}, .password = {}};
  const auto code = [&](const char* said) { return internal::fetch_error(name, said).code(); };
  EXPECT_EQ(code("Error response from daemon: manifest for reg.example/team/train:1 not found: manifest unknown"),
            ErrorCode::kNotFound);
  EXPECT_EQ(code("Error response from daemon: Get \"https://reg.example/v2/team/train/manifests/1\": no basic auth "
                 "credentials"),
            ErrorCode::kAuthentication);
  EXPECT_EQ(code("no matching manifest for linux/amd64 in the manifest list entries"), ErrorCode::kUnsupported);
  EXPECT_EQ(internal::words_of_podman("docker: Error response from daemon: no such thing.\nSee 'docker run --help'.\n"),
            "no such thing.");
}

}  // namespace
}  // namespace gyre::jobs::containers
