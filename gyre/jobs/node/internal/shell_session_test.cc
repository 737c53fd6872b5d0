// What mpirun and scripts read of a command on another node is all that it has written.
#include "gyre/jobs/node/internal/shell_session.h"

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

/// As /proc shows it: 'Z' of one that has ended and that nobody has asked for yet.
char state_of(const std::string& pid) {
  std::string text;
  std::ifstream("/proc/" + pid + "/stat") >> text >> text >> text;
  return text.empty() ? '\0' : text.front();
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

TEST(ShellSession, a_reader_that_is_slow_gets_the_end_of_what_an_ended_command_has_written) {
  std::string name = "/tmp/gyre-session-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name.data());
  const net::Endpoint endpoint{.kind = net::Endpoint::Kind::kUnix, .host = folder / "socket"};
  const UniqueFd listener = net::listen_on(endpoint);
  const net::JobKey key = orders::key_from_hex(std::string(64, '7'));
  const pid_t session = ::fork();
  if (session == 0) {
    UniqueFd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int small = 4096;
    ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    ::_exit(serve_shell_session(std::move(connection), key, 0, {"PATH=/usr/bin:/bin", "HOME=/tmp"}));
  }
  orders::MessagePipe pipe(
      orders::connect_securely(endpoint, key, {orders::Purpose::kShell, 0}, Deadline::after(kLongest)));
  // More than the session keeps for a reader (1 MB), by less than a pipe holds: the command ends all the same.
  constexpr std::size_t kBytes = 1'100'000;
  pipe.send(shell_message::kCommand, as_bytes("echo $$; exec head -c 1100000 /dev/zero"));
  std::string output;
  std::optional<std::uint32_t> code;
  receive_until(pipe, output, code, [&] { return output.find('\n') != std::string::npos; });
  const std::string command = output.substr(0, output.find('\n'));
  const Deadline deadline = Deadline::after(kLongest);
  while (state_of(command) != 'Z' && !deadline.passed()) ::poll(nullptr, 0, 5);
  EXPECT_EQ(state_of(command), 'Z');
  ::poll(nullptr, 0, 500);  // Longer than it waits for what an ended command's children may still write.
  receive_until(pipe, output, code, [&] { return code.has_value(); });
  EXPECT_EQ(output.size(), command.size() + 1 + kBytes);
  EXPECT_EQ(code, 0U);
  ::waitpid(session, nullptr, 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gyre::jobs::node::internal
