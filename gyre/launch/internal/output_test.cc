// The launcher's output must never block the launcher, and on a terminal a progress bar must survive other ranks'
// lines.
#include "gyre/launch/internal/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <string_view>

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
  const std::size_t all = lines * (line.size() + std::string("[0] \n").size());
  std::string received = read_ready(out.read_end);
  EXPECT_LT(received.size(), all);
  while (received.size() < all) {
    output.flush();
    const std::string more = read_ready(out.read_end);
    ASSERT_FALSE(more.empty());
    received += more;
  }
  EXPECT_EQ(output.what_is_missing(), "");
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
  EXPECT_TRUE(output.reader_has_gone());
  EXPECT_EQ(output.what_is_missing(), "");
  output.finish(err.read_end.get());  // Nothing is left to be written.
  ::sigaction(SIGPIPE, &before, nullptr);
}

/// A file on a disk that is full, until it is given room.
class FullDisk {
 public:
  FullDisk() : fd_(::open("/dev/full", O_WRONLY | O_CLOEXEC)) {}
  int fd() const { return fd_.get(); }
  void make_room() { ASSERT_EQ(::dup3(pipe_.write_end.get(), fd_.get(), O_CLOEXEC), fd_.get()); }
  std::string read() const { return read_ready(pipe_.read_end); }

 private:
  Pipe pipe_;
  UniqueFd fd_;
};

constexpr std::string_view kFullDisk =
    "gyre run: cannot write the ranks' output to stdout; it is tried again, and the ranks wait up to 60 s for it: No "
    "space left on device\n";

TEST(output, a_full_disk_costs_nothing_as_long_as_the_ranks_wait) {
  FullDisk disk;
  Pipe err;
  Output output(disk.fd(), err.write_end.get(), 1, false, {.pause = std::chrono::milliseconds(0)});
  const std::string line(1000, 'x');
  std::string all;
  while (!output.backlogged()) {
    output.rank_text(0, Stream::kStdout, line, LineEnd::kNewline);
    all += "[0] " + line + "\n";
    output.flush();
  }
  EXPECT_EQ(read_ready(err.read_end), kFullDisk);
  disk.make_room();
  std::string received;
  while (received.size() < all.size()) {
    output.flush();
    const std::string more = disk.read();
    ASSERT_FALSE(more.empty());
    received += more;
  }
  EXPECT_EQ(received, all);
  EXPECT_EQ(output.what_is_missing(), "");
}

TEST(output, what_a_disk_had_no_room_for_is_named_in_its_place) {
  FullDisk disk;
  Pipe err;
  Output output(disk.fd(), err.write_end.get(), 1, false,
                {.pause = std::chrono::milliseconds(0), .running = std::chrono::milliseconds(0)});
  const std::string line(1000, 'x');
  std::string kept;
  for (int count = 0; count < 300; ++count) {
    output.rank_text(0, Stream::kStdout, line, LineEnd::kNewline);
    output.flush();
    if (kept.size() + line.size() + 5 <= Output::kBacklogBytes) kept += "[0] " + line + "\n";
  }
  EXPECT_FALSE(output.backlogged());
  const std::size_t missing = 300 * (line.size() + 5) - kept.size();
  output.rank_text(0, Stream::kStdout, "short", LineEnd::kNewline);  // Would fit, but comes after what does not.
  const std::string sentence = fmt::format("{} bytes of ", missing + 10);
  disk.make_room();
  std::string received;
  const std::string expected =
      kept + "gyre run: " + sentence + "output are missing here, for which the disk had no room\n";
  while (received.size() < expected.size()) {
    output.flush();
    const std::string more = disk.read();
    ASSERT_FALSE(more.empty());
    received += more;
  }
  EXPECT_EQ(received, expected);
  output.rank_text(0, Stream::kStdout, "after", LineEnd::kNewline);
  output.flush();
  EXPECT_EQ(disk.read(), "[0] after\n");
  EXPECT_EQ(output.what_is_missing(), sentence + "stdout are missing, for which the disk had no room");
}

TEST(output, a_file_that_cannot_be_written_is_named_once) {
  const UniqueFd read_only(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe err;
  Output output(read_only.get(), err.write_end.get(), 1, false);
  for (int count = 0; count < 3; ++count) {
    output.rank_text(0, Stream::kStdout, "lost", LineEnd::kNewline);
    output.flush();
  }
  EXPECT_EQ(read_ready(err.read_end),
            "gyre run: the ranks' output is lost from here on: cannot write to stdout: Bad file descriptor\n");
  EXPECT_EQ(output.what_is_missing(), "cannot write to stdout: Bad file descriptor");
}

TEST(output, a_disk_that_stays_full_does_not_keep_the_launcher) {
  FullDisk disk;
  Pipe err;
  Output output(disk.fd(), err.write_end.get(), 1, false,
                {.pause = std::chrono::milliseconds(1), .at_end = std::chrono::milliseconds(20)});
  output.rank_text(0, Stream::kStdout, "lost", LineEnd::kNewline);
  output.finish(err.read_end.get());  // Is readable at once: its own words are there.
  output.finish(disk.fd());
  EXPECT_EQ(output.what_is_missing(), "9 bytes of stdout are missing, for which the disk had no room");
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
