// What a user of a job's shell relies on: all output and the exit code, a terminal that works, and nothing that lives
// on.
#include "gyre/jobs/node/job_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/net/message.h"

namespace gyre::jobs::node {
namespace {

namespace stream_message = orders::stream_message;
using orders::CommandRequest;
using testing::HasSubstr;

constexpr std::chrono::seconds kLongest{60};

/// A process that serves one command, from the node program's end.
class Served {
 public:
  explicit Served(const CommandRequest& request) {
    std::array<int, 2> ends;
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) throw system_error("socketpair", errno);
    socket_ = UniqueFd(ends[0]);
    process_ = ::fork();
    if (process_ == 0) {
      socket_.reset();
      ::_exit(serve_job_command(UniqueFd(ends[1]), {"PATH=/usr/bin:/bin", "COLOUR=blue", "TERM=dumb"}));
    }
    ::close(ends[1]);
    orders::StreamRequest open{.attempt = "a-1", .command = request};
    send(stream_message::kOpen, as_bytes(encode(open)));
  }
  ~Served() {
    socket_.reset();
    ::waitpid(process_, nullptr, 0);
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  void send(std::uint16_t type, std::span<const std::byte> bytes = {}) {
    const Bytes message = net::encode_message(type, orders::encode_stream(0, bytes));
    // It may have ended.
    [[maybe_unused]] const ssize_t ignored = ::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL);
  }
  void type(const std::string& text) { send(stream_message::kBytes, as_bytes(text)); }
  void hang_up() { socket_.reset(); }
  void signal_server(int signal = SIGTERM) { ::kill(process_, signal); }
  void give_credit(std::uint32_t bytes) {
    const Bytes payload = orders::encode_credit(0, bytes);
    send(stream_message::kCredit, std::span(payload).subspan(4));
  }

  template <typename Condition>
  void until(const Condition& condition) {
    const Deadline deadline = Deadline::after(kLongest);
    while (!condition() && !deadline.passed() && !gone_) receive(deadline);
    EXPECT_TRUE(condition()) << "output: " << output << "\nerrors: " << errors << "\nclosed: " << closed.value_or("-");
  }
  void until_closed() {
    until([&] { return closed.has_value(); });
  }
  void until_said(const std::string& text) {
    until([&] { return output.find(text) != std::string::npos; });
  }

  bool gives_credit = true;
  std::string output;
  std::string errors;
  std::uint64_t credit = 0;
  std::optional<int> code;
  std::optional<std::string> closed;

 private:
  void receive(Deadline deadline) {
    pollfd wait{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, deadline.poll_timeout_ms());
    std::array<char, 65'536> bytes;
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    gone_ = count == 0;
    if (count <= 0) return;
    parser_.append(as_bytes({bytes.data(), static_cast<std::size_t>(count)}));
    while (const auto message = parser_.next()) {
      const orders::StreamMessage part = orders::stream_message_from(*message);
      if (part.type == stream_message::kBytes) take(part, output, stream_message::kCredit);
      if (part.type == stream_message::kErrors) take(part, errors, stream_message::kErrorsCredit);
      if (part.type == stream_message::kCredit) credit += credit_from(part);
      if (part.type == stream_message::kExit) code = exit_from(part);
      if (part.type == stream_message::kClosed) closed = std::string(as_text(part.bytes));
    }
  }
  void take(const orders::StreamMessage& part, std::string& to, std::uint16_t credit_type) {
    to += as_text(part.bytes);
    if (!gives_credit) return;
    const Bytes payload = orders::encode_credit(0, static_cast<std::uint32_t>(part.bytes.size()));
    send(credit_type, std::span(payload).subspan(4));
  }

  UniqueFd socket_;
  pid_t process_ = -1;
  net::MessageParser parser_;
  bool gone_ = false;
};

CommandRequest line(const std::string& text) { return {.words = {"sh", "-c", text}}; }
CommandRequest on_terminal(CommandRequest request) {
  request.terminal = {.type = "xterm", .size = {.columns = 91, .rows = 17}};
  return request;
}

bool runs(const std::string& pid) { return ::kill(std::stoi(pid), 0) == 0; }

/// Until the process that printed its number has gone.
void expect_end_of(const std::string& pid) {
  const Deadline deadline = Deadline::after(kLongest);
  while (runs(pid) && !deadline.passed()) ::poll(nullptr, 0, 5);
  EXPECT_FALSE(runs(pid));
}

TEST(JobCommand, output_errors_and_exit_code_come_apart_and_the_end_of_input_arrives) {
  Served served(line("echo $COLOUR; echo bad >&2; cat; exit 7"));
  served.type("typed");
  served.send(stream_message::kEnd);
  served.until_closed();
  EXPECT_EQ(served.output, "blue\ntyped");
  EXPECT_EQ(served.errors, "bad\n");
  EXPECT_EQ(served.code, 7);
  EXPECT_EQ(served.closed, "");
  EXPECT_EQ(served.credit, 5U);
}

TEST(JobCommand, a_signal_and_a_program_that_cannot_run_give_the_codes_of_shells) {
  const auto code_of = [](const CommandRequest& request) {
    Served served(request);
    served.until_closed();
    EXPECT_EQ(served.closed, "");
    return std::pair(served.code.value_or(-1), served.errors);
  };
  EXPECT_EQ(code_of(line("kill -TERM $$")).first, 128 + SIGTERM);
  EXPECT_EQ(code_of({.words = {"no-such-program"}}).first, 127);
  EXPECT_THAT(code_of({.words = {"no-such-program"}}).second, HasSubstr("gyre job shell: "));
  EXPECT_EQ(code_of({.words = {"/dev/null"}}).first, 126);
  EXPECT_EQ(code_of({.words = {"/tmp"}}).first, 126);
}

TEST(JobCommand, without_credit_no_more_comes_than_the_window_of_each_output) {
  Served served(line("head -c 200000 /dev/zero >&2 & head -c 200000 /dev/zero; wait"));
  served.gives_credit = false;
  served.until(
      [&] { return served.output.size() >= orders::kStreamWindow && served.errors.size() >= orders::kStreamWindow; });
  EXPECT_EQ(served.output.size(), orders::kStreamWindow);
  EXPECT_EQ(served.errors.size(), orders::kStreamWindow);
  EXPECT_FALSE(served.code);
}

/// As /proc shows it: 'Z' of one that has ended and that nobody has asked for yet.
char state_of(const std::string& pid) {
  std::string text;
  std::ifstream("/proc/" + pid + "/stat") >> text >> text >> text;
  return text.empty() ? '\0' : text.front();
}

/// A reader that is slow, or a machine that is busy, must not cost the end of what an ended command has written.
TEST(JobCommand, output_that_waited_for_credit_comes_however_late_that_is) {
  constexpr std::size_t kBytes = 100'000;
  Served served(line("echo $$; exec head -c 100000 /dev/zero"));
  served.gives_credit = false;
  served.until([&] { return served.output.size() >= orders::kStreamWindow; });
  const std::string command = served.output.substr(0, served.output.find('\n'));
  const Deadline deadline = Deadline::after(kLongest);
  while (state_of(command) != 'Z' && !deadline.passed()) ::poll(nullptr, 0, 5);
  served.signal_server(SIGSTOP);
  served.gives_credit = true;
  served.give_credit(orders::kStreamWindow);
  ::poll(nullptr, 0, 500);  // Longer than it waits for what an ended command's children may still write.
  served.signal_server(SIGCONT);
  served.until_closed();
  EXPECT_EQ(served.output.size(), command.size() + 1 + kBytes);
  EXPECT_EQ(served.code, 0);
}

TEST(JobCommand, on_a_terminal_it_has_its_size_its_type_and_its_keys) {
  Served served(on_terminal({.words = {"sh"}}));
  served.type("stty size; echo \"<$TERM>\"; tty\n");
  served.until_said("<xterm>");
  EXPECT_THAT(served.output, HasSubstr("17 91"));
  served.until_said("/dev/pts/");
  const Bytes size = orders::encode_size(0, {.columns = 120, .rows = 40});
  served.send(stream_message::kSize, std::span(size).subspan(4));
  served.type("stty size\n");
  served.until_said("40 120");
  served.type("sh -c 'echo be\"\"gun; exec sleep 1000'\n");
  served.until_said("begun");
  served.type("\x03");
  served.type("echo code $?\n");
  served.until_said("code 130");
  served.type("\x04");
  served.until_closed();
  EXPECT_EQ(served.closed, "");
  EXPECT_EQ(served.errors, "");
}

/// A script that asks for a terminal and gives it a pipe or /dev/null must end by itself.
TEST(JobCommand, the_end_of_input_ends_what_reads_a_terminal_whenever_it_begins_to) {
  Served unfinished(on_terminal({.words = {"cat"}}));
  unfinished.type("no end of line");
  unfinished.send(stream_message::kEnd);
  unfinished.until_closed();
  EXPECT_EQ(unfinished.code, 0);
  Served late(on_terminal(line("stty raw; sleep 0.1; stty -raw; exec cat")));  // Which drops what has been typed.
  late.send(stream_message::kEnd);
  late.until_closed();
  EXPECT_EQ(late.code, 0);
  Served shell(on_terminal({.words = {"bash", "--norc", "-i"}}));
  shell.send(stream_message::kEnd);
  shell.until_closed();
  EXPECT_EQ(shell.code, 0);
}

TEST(JobCommand, it_ends_when_its_user_goes_and_its_background_jobs_get_the_hang_up) {
  Served served(on_terminal({.words = {"bash", "--norc", "-i"}}));
  served.type("sleep 1000 & echo \"<$$><$!>\"\n");
  served.until([&] { return served.output.find("><", served.output.find("\n")) != std::string::npos; });
  served.until_said(">\r\n");
  const std::size_t begin = served.output.rfind('<', served.output.rfind("><") - 1) + 1;
  const std::size_t middle = served.output.rfind("><");
  const std::string shell = served.output.substr(begin, middle - begin);
  const std::string job = served.output.substr(middle + 2, served.output.find('>', middle + 2) - middle - 2);
  EXPECT_TRUE(runs(shell));
  served.hang_up();
  expect_end_of(shell);
  expect_end_of(job);
}

TEST(JobCommand, one_that_ignores_its_hang_up_is_killed_and_the_user_hears_that_the_job_has_ended) {
  Served served(line("trap '' HUP TERM; echo $$; while true; do sleep 0.05; done"));
  served.until_said("\n");
  served.signal_server();
  served.until_closed();
  EXPECT_EQ(served.closed, "the job has ended");
  expect_end_of(served.output.substr(0, served.output.find('\n')));
}

TEST(JobCommand, what_goes_on_in_the_background_does_not_keep_it_from_its_end) {
  Served served(line("sleep 1000 & echo $!"));
  served.until_closed();
  EXPECT_EQ(served.code, 0);
  const std::string background = served.output.substr(0, served.output.find('\n'));
  EXPECT_TRUE(runs(background));
  ::kill(std::stoi(background), SIGKILL);
}

}  // namespace
}  // namespace gyre::jobs::node
