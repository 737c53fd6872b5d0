// The launcher's output must never block the launcher, and on a terminal a progress bar must survive other ranks'
// lines.
#include "gyre/launch/internal/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "gyre/base/file.h"

namespace gyre::launch {
namespace {

/// What lies ready to be read.
std::string read_ready(const UniqueFd& fd) {
  std::string text;
  char buffer[4096];
  pollfd ready{.fd = fd.get(), .events = POLLIN, .revents = 0};
  while (::poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) != 0) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count <= 0) break;
    text.append(buffer, static_cast<std::size_t>(count));
  }
  return text;
}

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end = UniqueFd(ends[0]);
    write_end = UniqueFd(ends[1]);
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

struct Terminal {
  explicit Terminal(unsigned short columns) {
    int master_fd = -1;
    int slave_fd = -1;
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    EXPECT_EQ(::openpty(&master_fd, &slave_fd, nullptr, nullptr, &size), 0);
    master = UniqueFd(master_fd);
    slave = UniqueFd(slave_fd);
    termios settings{};
    ::tcgetattr(slave_fd, &settings);
    settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // No "\n" to "\r\n".
    ::tcsetattr(slave_fd, TCSANOW, &settings);
  }
  UniqueFd master;
  UniqueFd slave;
};

TEST(output, lines_carry_their_rank_and_keep_their_stream) {
  Pipe out;
  Pipe err;
  Output output(out.write_end.get(), err.write_end.get(), 12, true);
  output.rank_text(2, Stream::kStdout, "hello", LineEnd::kNewline);
  output.rank_text(11, Stream::kStdout, "cut", LineEnd::kCut);
  output.rank_text(0, Stream::kStderr, "warning", LineEnd::kEndOfStream);
  output.say("gyre run: done");
  output.flush();
  EXPECT_EQ(read_ready(out.read_end), "[2]  hello\n[11] cut\n");
  EXPECT_EQ(read_ready(err.read_end), "[0]  warning\ngyre run: done\n");
}

TEST(output, without_a_terminal_only_the_final_state_of_a_bar_is_printed) {
  Pipe out;
  Output output(out.write_end.get(), out.write_end.get(), 2, true);
  output.rank_text(0, Stream::kStdout, "10%", LineEnd::kCarriageReturn);
  output.progress(0, Stream::kStdout, "20%");
  output.flush();
  output.rank_text(0, Stream::kStdout, "100%", LineEnd::kNewline);
  output.flush();
  EXPECT_EQ(read_ready(out.read_end), "[0] 100%\n");
}

TEST(output, a_reader_who_does_not_read_blocks_nothing_and_gets_everything_later) {
  Pipe out;
  Output output(out.write_end.get(), out.write_end.get(), 1, false);
  const std::string line(1000, 'x');
  std::size_t lines = 0;
  while (!output.backlogged()) {
    output.rank_text(0, Stream::kStdout, line, LineEnd::kNewline);
    output.flush();
    ++lines;
  }
  EXPECT_TRUE(output.pending(Stream::kStdout));
  std::string received;
  while (output.pending(Stream::kStdout)) {
    received += read_ready(out.read_end);
    output.flush();
  }
  received += read_ready(out.read_end);
  EXPECT_EQ(received.size(), lines * (line.size() + std::string("[0] \n").size()));
}

TEST(output, a_reader_who_has_gone_is_noticed_and_the_rest_is_dropped) {
  struct sigaction before{};
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  Pipe out;
  Pipe err;
  Output output(out.write_end.get(), err.write_end.get(), 1, false);
  out.read_end.reset();
  output.rank_text(0, Stream::kStdout, "lost", LineEnd::kNewline);
  output.flush();
  EXPECT_EQ(output.stdout_failure(), EPIPE);
  EXPECT_FALSE(output.pending(Stream::kStdout));
  ::sigaction(SIGPIPE, &before, nullptr);
}

TEST(output, on_a_terminal_the_bar_stays_below_the_lines) {
  Terminal terminal(80);
  Output output(terminal.slave.get(), terminal.slave.get(), 2, false);
  output.progress(0, Stream::kStderr, "10%");
  output.flush();
  EXPECT_EQ(read_ready(terminal.master), "[0] 10%");
  output.rank_text(1, Stream::kStdout, "hello", LineEnd::kNewline);
  output.flush();
  EXPECT_EQ(read_ready(terminal.master), "\r\x1b[K[1] hello\n[0] 10%");
  output.progress(0, Stream::kStderr, "20%");
  output.flush();
  EXPECT_EQ(read_ready(terminal.master), "\r\x1b[K[0] 20%");
  output.rank_text(0, Stream::kStderr, "100%", LineEnd::kNewline);
  output.flush();
  EXPECT_EQ(read_ready(terminal.master), "\r\x1b[K[0] 100%\n");
}

TEST(output, a_bar_is_cut_to_the_terminals_width) {
  Terminal terminal(10);
  Output output(terminal.slave.get(), terminal.slave.get(), 1, false);
  output.progress(0, Stream::kStderr, "\xE2\x96\x88\xE2\x96\x88 123456789");  // Two blocks of three bytes each.
  output.flush();
  EXPECT_EQ(read_ready(terminal.master), "[0] \xE2\x96\x88\xE2\x96\x88 12");
}

TEST(output, ranks_have_colours_on_a_terminal_only) {
  Terminal terminal(80);
  Pipe err;
  Output output(terminal.slave.get(), err.write_end.get(), 1, true);
  output.rank_text(0, Stream::kStdout, "x", LineEnd::kNewline);
  output.rank_text(0, Stream::kStderr, "x", LineEnd::kNewline);
  output.flush();
  EXPECT_EQ(read_ready(terminal.master), "\x1b[36m[0] \x1b[0mx\n");
  EXPECT_EQ(read_ready(err.read_end), "[0] x\n");
}

}  // namespace
}  // namespace gyre::launch
