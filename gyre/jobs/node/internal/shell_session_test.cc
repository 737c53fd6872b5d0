// What mpirun and scripts read of a command on another node is all that it has written.
#include "gyre/jobs/node/internal/shell_session.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/jobs/orders/secure_connection.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/socket.h"

namespace gyre::jobs::node::internal {
namespace {

constexpr std::chrono::seconds kLongest{60};

/// Gone, or a zombie, which nobody has asked for yet.
bool has_ended(const std::string& pid) {
  std::string text;
  std::ifstream("/proc/" + pid + "/stat") >> text >> text >> text;
  return text.empty() || text == "Z";
}

/// Until `condition`, or the end of the connection or of all patience.
template <typename Condition>
void receive_until(orders::MessagePipe& pipe, std::string& output, std::optional<std::uint32_t>& code,
                   const Condition& condition) {
  const Deadline deadline = Deadline::after(kLongest);
  while (!condition() && !deadline.passed()) {
    const auto message = pipe.receive();
    if (!message) {
      pollfd wait{.fd = pipe.fd(), .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, deadline.poll_timeout_ms());
    } else if (message->type == shell_message::kOutput) {
      output += as_text(message->payload);
    } else if (message->type == shell_message::kExit) {
      code = ByteReader(message->payload, "an exit code").u32();
    }
  }
  EXPECT_TRUE(condition());
}

/// A reader that makes a pause as soon as the command, which writes so many bytes, has ended.
void expect_all_after_a_pause(std::size_t bytes, std::chrono::milliseconds pause) {
  std::string name = "/tmp/gyre-session-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name.data());
  const net::Endpoint endpoint{.kind = net::Endpoint::Kind::kUnix, .host = folder / "socket"};
  const UniqueFd listener = net::listen_on(endpoint);
  const net::JobKey key = orders::key_from_hex(std::string(64, '7'));
  const pid_t session = ::fork();
  if (session == 0) {
    pollfd client{.fd = listener.get(), .events = POLLIN, .revents = 0};  // The listener itself does not wait.
    ::poll(&client, 1, -1);
    UniqueFd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int small = 4096;
    ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    ::_exit(serve_shell_session(std::move(connection), key, 0, {"PATH=/usr/bin:/bin", "HOME=/tmp"}));
  }
  orders::MessagePipe pipe(
      orders::connect_securely(endpoint, key, {orders::Purpose::kShell, 0}, Deadline::after(kLongest)));
  pipe.send(shell_message::kCommand, as_bytes(fmt::format("echo $$; exec head -c {} /dev/zero", bytes)));
  std::string output;
  std::optional<std::uint32_t> code;
  receive_until(pipe, output, code, [&] { return output.find('\n') != std::string::npos; });
  const std::string command = output.substr(0, output.find('\n'));
  const Deadline deadline = Deadline::after(kLongest);
  while (!has_ended(command) && !deadline.passed()) ::poll(nullptr, 0, 5);
  EXPECT_TRUE(has_ended(command));
  ::poll(nullptr, 0, static_cast<int>(pause.count()));
  receive_until(pipe, output, code, [&] { return code.has_value(); });
  EXPECT_EQ(output.size(), command.size() + 1 + bytes);
  EXPECT_EQ(code, 0U);
  ::waitpid(session, nullptr, 0);
  std::filesystem::remove_all(folder);
}

TEST(ShellSession, a_reader_that_is_slow_gets_the_end_of_what_an_ended_command_has_written) {
  // More than the session keeps for a reader (1 MB), by less than a pipe holds: the command ends all the same. The
  // pause is longer than the session waits for what an ended command's children may still write.
  expect_all_after_a_pause(1'100'000, std::chrono::milliseconds(500));
}

TEST(ShellSession, a_reader_may_pause_for_longer_than_an_end_takes) {
  expect_all_after_a_pause(500'000, std::chrono::seconds(6));
}

}  // namespace
}  // namespace gyre::jobs::node::internal
