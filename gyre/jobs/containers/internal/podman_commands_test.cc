#include "gyre/jobs/containers/internal/podman_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"
#include "gyre/jobs/containers/program_files.h"

namespace gyre::jobs::containers {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The files of a large image would be copied once for each account.
TEST(PodmanCommands, files_change_hands_without_a_copy_where_the_kernel_can) {
  const auto options = [](bool metacopy) { return internal::storage_arguments("/s", "/r", "", metacopy); };
  EXPECT_THAT(options(true), Contains("overlay.mountopt=metacopy=on"));
  EXPECT_THAT(options(false), Not(Contains("--storage-opt")));
}

// What users write is completed as docker does it.
TEST(PodmanCommands, an_image_has_one_full_name_however_it_is_written) {
  const auto full = [](const std::string& image, const std::string& server = "") {
    return internal::full_name({.image = image, .server = server, .user = {}, .password = {}});
  };
  EXPECT_EQ(full("python:3"), "docker.io/library/python:3");
  EXPECT_EQ(full("tensorflow/tensorflow:1.6.0-gpu"), "docker.io/tensorflow/tensorflow:1.6.0-gpu");
  EXPECT_EQ(full("reg.example/team/train"), "reg.example/team/train");
  EXPECT_EQ(full("localhost:5000/train"), "localhost:5000/train");
  EXPECT_EQ(full("team/train:1", "https://reg.example/"), "reg.example/team/train:1");
  EXPECT_EQ(full("reg.example/team/train:1", "reg.example"), "reg.example/team/train:1");
  EXPECT_EQ(full("team/train", "index.docker.io"), "docker.io/team/train");
  EXPECT_EQ(internal::registry_of("reg.example:5000/a/b"), "reg.example:5000");
}

// The password is seen by nobody who lists processes.
TEST(PodmanCommands, a_password_stands_in_the_file_and_in_no_command) {
  EXPECT_EQ(internal::credentials_file("reg.example", "ada", "hush"),
            R"({"auths":{"reg.example":{"auth":"YWRhOmh1c2g="}}})");
  EXPECT_EQ(internal::credentials_file("r", "a", "b"), R"({"auths":{"r":{"auth":"YTpi"}}})");
  EXPECT_THAT(internal::pull_arguments("reg.example/a", "/run/f"),
              ElementsAre("pull", "--quiet", "--authfile", "/run/f", "docker://reg.example/a"));
}

// A tag may lead elsewhere tomorrow.
TEST(PodmanCommands, a_digest_takes_the_place_of_a_tag) {
  EXPECT_EQ(internal::with_digest("reg.example:5000/a/b:1", ""), "reg.example:5000/a/b:1");
  EXPECT_EQ(internal::with_digest("reg.example:5000/a/b:1", "sha256:2"), "reg.example:5000/a/b@sha256:2");
  EXPECT_EQ(internal::with_digest("reg.example:5000/a/b", "sha256:2"), "reg.example:5000/a/b@sha256:2");
  EXPECT_EQ(internal::with_digest("reg.example/a@sha256:2", "sha256:2"), "reg.example/a@sha256:2");
  EXPECT_THAT(internal::digest_arguments("reg.example/a", "/run/f"), Contains("/run/f"));
}

// The container's root must never be the machine's.
TEST(PodmanCommands, a_container_has_the_accounts_rights_its_mounts_and_its_program) {
  Container container;
  container.name = "gyre-a-n";
  container.image_id = "sha256:1";
  container.labels = {{"gyre.node", "/nodes/n"}};
  container.root = {.user = 1000, .group = 100, .groups = {}};
  container.places = {{"/a", "/a"}};
  container.program = {{"/b", "/c", true}};
  container.shared_memory_bytes = 64;
  container.cores = 2;
  container.memory_bytes = 128;
  container.command = {"/.gyre/gyre-node", "hold"};
  container.environment = {{"X", "1"}};
  const std::uint32_t first = internal::first_subordinate(1000);
  const std::string others = "1:" + std::to_string(first) + ":65535";
  EXPECT_THAT(internal::run_arguments(container, "/p"),
              ElementsAre("run", "--pidfile", "/p", "--detach", "--rm", "--name", "gyre-a-n", "--network", "host",
                          "--pull", "never", "--user", "0:0", "--workdir", "/", "--no-healthcheck", "--shm-size", "64b",
                          "--cpus", "2", "--memory", "128b", "--memory-swap", "128b", "--label", "gyre.node=/nodes/n",
                          "--env", "X=1", "--uidmap", "0:1000:1", "--uidmap", others, "--gidmap", "0:100:1", "--gidmap",
                          others, "--systemd", "false", "--mount", "type=bind,src=/a,dst=/a,bind-propagation=rslave",
                          "--mount", "type=bind,src=/b,dst=/c,bind-propagation=rslave,ro", "--entrypoint",
                          "/.gyre/gyre-node", "sha256:1", "hold"));
  const ImageBuild build{.name = "localhost/gyre-built:1",
                         .dockerfile = {},
                         .bases = {},
                         .context = "/context",
                         .root = container.root,
                         .cores = 2,
                         .memory_bytes = 128};
  EXPECT_THAT(
      internal::build_arguments(build, "/file"),
      ElementsAre("build", "--pull=never", "--network", "host", "--layers=false", "--force-rm", "--file", "/file",
                  "--tag", "localhost/gyre-built:1", "--userns-uid-map", "0:1000:1", "--userns-uid-map", others,
                  "--userns-gid-map", "0:100:1", "--userns-gid-map", others, "--cpu-period", "100000", "--cpu-quota",
                  "200000", "--memory", "128b", "--memory-swap", "128b", "/context"));
  EXPECT_EQ(internal::configuration_arguments("/s", "/t", "", "1").back(),
            "containers-storage:[overlay@/s/root+/t/run]@1");
  EXPECT_EQ(internal::configuration_arguments("/s", "/t", "/u", "1").back(),
            "containers-storage:[overlay@/s/root+/t/run:overlay.imagestore=/u]@1");
  EXPECT_GE(first, 0x7000'0000U);
  EXPECT_NE(first, internal::first_subordinate(1001));
}

TEST(PodmanCommands, settings_name_limits_that_may_be_set_and_runc_where_it_is) {
  const std::string text = internal::settings_file({.files = 20, .processes = 30}, true);
  EXPECT_THAT(text, HasSubstr(R"(default_ulimits = ["nofile=20:20", "nproc=30:30"])"));
  EXPECT_THAT(text, HasSubstr(R"(runtime = "runc")"));
  EXPECT_THAT(internal::settings_file({}, false), Not(HasSubstr("runtime")));
}

TEST(SharedMemory, is_half_of_the_memory_or_what_was_asked_for_if_the_memory_holds_it) {
  EXPECT_EQ(shared_memory_size("", 100), 50U);
  EXPECT_EQ(shared_memory_size("64m", std::uint64_t{1} << 30), std::uint64_t{64} << 20);
  EXPECT_EQ(bytes_of_size("16gb"), std::uint64_t{16} << 30);
  EXPECT_EQ(bytes_of_size("12"), 12U);
  EXPECT_THROW(shared_memory_size("2g", std::uint64_t{1} << 30), Error);
  EXPECT_THROW(bytes_of_size("much"), Error);
}

TEST(ProgramFiles, libraries_are_those_that_the_loader_has_found) {
  EXPECT_THAT(libraries_in("\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so (0x3)\n"),
              ElementsAre("/lib/libc.so.6"));
}

}  // namespace
}  // namespace gyre::jobs::containers
