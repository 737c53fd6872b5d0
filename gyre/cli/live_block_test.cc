// A block that is drawn again in place must not write over a job's lines, whatever the terminal's size; what a screen
// shows is tested with a real one (tests/e2e/live_view_test.py).
#include "gyre/cli/live_block.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "gyre/base/file.h"

namespace gyre::cli {
namespace {

/// A pipe: its size is unknown, as that of some serial lines, so that it counts as 80 by 24.
class LiveBlockTest : public testing::Test {
 protected:
  LiveBlockTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    read_ = UniqueFd(ends[0]);
    write_ = UniqueFd(ends[1]);
  }
  std::string written() {
    std::array<char, 65'536> text{};
    const ssize_t count = ::read(read_.get(), text.data(), text.size());
    return {text.data(), static_cast<std::size_t>(count)};
  }

  UniqueFd read_;
  UniqueFd write_;
};

TEST_F(LiveBlockTest, lines_are_cut_by_columns_not_by_bytes) {
  EXPECT_EQ(cut_to_columns("grün", 3), "grü");
  EXPECT_EQ(cut_to_columns("日本語", 5), "日本");
  EXPECT_EQ(cut_to_columns("e\u0301e\u0301", 1), "e\u0301");
  EXPECT_EQ(columns_of("日本 ok"), 7);
  EXPECT_EQ(cut_to_columns("text", 0), "");
}

TEST_F(LiveBlockTest, text_goes_above_the_block_which_is_drawn_again_below_it) {
  LiveBlock block({.fd = write_.get(), .draws = true});
  block.show({{"train  running", Tone::kGood}, {"node-1"}});
  EXPECT_EQ(written(), "train  running\nnode-1\n");
  block.write(stdout, "epoch 1\nepo");
  EXPECT_EQ(written(), "\r\x1b[2A\x1b[Jepoch 1\ntrain  running\nnode-1\nepo\n");
  block.write(stdout, "ch 2\n");
  EXPECT_EQ(written(), "\r\x1b[3A\x1b[Jepoch 2\ntrain  running\nnode-1\n");
  block.clear();
  EXPECT_EQ(written(), "\r\x1b[2A\x1b[J");
}

// A block that does not change must not flicker.
TEST_F(LiveBlockTest, the_same_block_is_not_drawn_twice) {
  LiveBlock block({.fd = write_.get(), .draws = true});
  block.show({{"train  running"}});
  block.show({{"train  running"}});
  block.show({{"train  ended"}});
  EXPECT_EQ(written(), "train  running\n\r\x1b[1A\x1b[Jtrain  ended\n");
}

TEST_F(LiveBlockTest, a_progress_bar_is_the_blocks_last_line_and_stays_once_it_has_ended) {
  LiveBlock block({.fd = write_.get(), .draws = true});
  block.write(stderr, "\r 10%\r 20%");
  EXPECT_EQ(written(), " 20%\n");
  block.clear();
  EXPECT_EQ(written(), "\r\x1b[1A\x1b[J\r 10%\r 20%\n");
}

// A job's name or a message may hold anything; none of it may move the cursor.
TEST_F(LiveBlockTest, control_characters_of_the_block_are_shown_and_colours_end_with_their_line) {
  LiveBlock block({.fd = write_.get(), .draws = true, .colour = true});
  block.show({{"a\x1b[2Jb\n", Tone::kBad}});
  EXPECT_EQ(written(), "\x1b[31ma\\x1b[2Jb\\x0a\x1b[0m\n");
}

TEST_F(LiveBlockTest, where_it_does_not_draw_nothing_but_the_text_is_written) {
  LiveBlock block({.fd = write_.get()});
  block.show({{"train  running"}});
  block.clear();
  std::FILE* plain = ::fdopen(::dup(write_.get()), "w");
  ASSERT_NE(plain, nullptr);
  block.write(plain, "epoch 1\nepo");
  std::fclose(plain);
  EXPECT_EQ(written(), "epoch 1\nepo");
}

}  // namespace
}  // namespace gyre::cli
