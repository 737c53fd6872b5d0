// The sockets of a job's `gyre launch` lie in a folder of the job's account: whatever it puts in their place, nobody
// who has more rights is led elsewhere, or kept waiting.
#include "gyre/jobs/node/launched_set.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::jobs::node {
namespace {

namespace fs = std::filesystem;

class Sockets : public testing::Test {
 protected:
  Sockets() {
    std::string name = "/tmp/gyre-sockets-XXXXXX";
    place_ = ::mkdtemp(name.data());
    fs::create_directories(place_ / "private");
    fs::create_directories(place_ / "other");
  }
  ~Sockets() override { fs::remove_all(place_); }

  static UniqueFd listener(const fs::path& path, int backlog = 16) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.native().size());
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket.get(), backlog), 0);
    return socket;
  }
  LaunchState state() const { return LaunchedSet::state(place_ / "private/ranks.sock"); }

  fs::path place_;
};

TEST_F(Sockets, one_that_is_listened_to_runs_and_an_abandoned_one_has_died) {
  EXPECT_EQ(state(), LaunchState::kAbsent);
  UniqueFd socket = listener(place_ / "private/ranks.sock");
  EXPECT_EQ(state(), LaunchState::kRuns);
  socket.reset();
  EXPECT_EQ(state(), LaunchState::kDied);
}

TEST_F(Sockets, a_link_to_anothers_socket_leads_nowhere) {
  const UniqueFd socket = listener(place_ / "other/ranks.sock");
  fs::create_symlink(place_ / "other/ranks.sock", place_ / "private/ranks.sock");
  EXPECT_EQ(state(), LaunchState::kAbsent);
}

TEST_F(Sockets, a_hard_link_to_anothers_socket_leads_nowhere) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const UniqueFd socket = listener(place_ / "other/ranks.sock");
  ASSERT_EQ(::chown((place_ / "private").c_str(), 60'000, 60'000), 0);
  fs::create_hard_link(place_ / "other/ranks.sock", place_ / "private/ranks.sock");
  EXPECT_EQ(state(), LaunchState::kAbsent);
}

TEST_F(Sockets, a_file_and_a_pipe_are_none) {
  ASSERT_EQ(::mkfifo((place_ / "private/ranks.sock").c_str(), 0666), 0);
  EXPECT_EQ(state(), LaunchState::kAbsent);
}

TEST_F(Sockets, nobody_waits_for_one_that_takes_no_connection) {
  const UniqueFd socket = listener(place_ / "private/ranks.sock", 0);
  std::vector<LaunchedSet> connections;
  EXPECT_THROW(for (;;) connections.push_back(LaunchedSet::find(place_ / "private/ranks.sock")), Error);
}

TEST_F(Sockets, what_is_no_record_is_an_error) {
  const UniqueFd socket = listener(place_ / "private/ranks.sock");
  for (const std::string line : {R"({"type": 7})", "nonsense", R"({"type": )"}) {
    SCOPED_TRACE(line);
    LaunchedSet set = LaunchedSet::find(place_ / "private/ranks.sock");
    const UniqueFd connection(::accept(socket.get(), nullptr, nullptr));
    const std::string text = line + "\n";
    ASSERT_EQ(::write(connection.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    EXPECT_THROW(set.next(Deadline::after(std::chrono::seconds(10)), -1), Error);
  }
}

}  // namespace
}  // namespace gyre::jobs::node
