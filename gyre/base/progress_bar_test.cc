// Progress must be pleasant on a terminal and must not fill log files with control characters.
#include "gyre/base/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace gyre {
namespace {

using testing::HasSubstr;
using testing::Not;

/// What a bar with these options writes to a pipe for `steps` updates without any pause between drawings.
std::string written(ProgressOptions options, std::uint64_t steps) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  options.fd = ends[1];
  options.redraw = options.repeat = std::chrono::milliseconds(0);
  ProgressBar bar("epoch 1/2", steps, options);
  for (std::uint64_t step = 1; step <= steps; ++step) bar.update(step, "loss 0.5");
  bar.clear();
  ::close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t count = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  text.resize(static_cast<std::size_t>(count));
  return text;
}

TEST(ProgressBar, a_pipe_gets_plain_lines) {
  EXPECT_EQ(written({}, 2), "epoch 1/2 1/2 (50 %) loss 0.5\nepoch 1/2 2/2 (100 %) loss 0.5\n");
}

TEST(ProgressBar, a_terminal_gets_one_line_redrawn_and_taken_away) {
  const std::string text = written({.terminal = true}, 2);
  EXPECT_EQ(text,
            "\r\x1b[Kepoch 1/2 [############------------] 1/2 loss 0.5"
            "\r\x1b[Kepoch 1/2 [########################] 2/2 loss 0.5\r\x1b[K");
}

TEST(ProgressBar, lines_come_no_more_often_than_asked_for) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ProgressBar bar("epoch", 1000, {.fd = ends[1], .repeat = std::chrono::hours(1)});
  for (std::uint64_t step = 1; step <= 1000; ++step) bar.update(step, "");
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0) << "nothing was due within the hour";
  ::close(ends[0]);
}

TEST(ProgressBar, colour_is_for_terminals_that_want_it) {
  const ProgressOptions plain{.terminal = true};
  EXPECT_THAT(ProgressBar::line("e", 1, 2, "", plain), Not(HasSubstr("\x1b")));
  const ProgressOptions coloured{.terminal = true, .colour = true};
  EXPECT_EQ(ProgressBar::line("e", 1, 2, "n", coloured), "e [\x1b[32m############\x1b[0m------------] 1/2 n");
  EXPECT_FALSE(progress_options_from_environment(-1).terminal);
}

TEST(ProgressBar, a_narrow_terminal_gets_a_line_that_fits) {
  for (int width = 1; width < 60; ++width) {
    const ProgressOptions options{.terminal = true, .width = width};
    EXPECT_LE(ProgressBar::line("epoch 1/2", 1, 2, "loss", options).size(),
              static_cast<std::size_t>(std::max(width - 1, 1)));
  }
}

}  // namespace
}  // namespace gyre
