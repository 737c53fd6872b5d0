// What jobs write, names of files among it, is shown on people's terminals.
#include "gyre/cli/table.h"

#include <gtest/gtest.h>

namespace gyre::cli {
namespace {

TEST(TableTest, columns_are_as_wide_as_their_widest_cell) {
  Table table({"NAME", "STATE"});
  table.add({"a-long-name", "queued"});
  table.add({"b", ""});
  EXPECT_EQ(table.text(), "NAME         STATE\na-long-name  queued\nb            -\n");
}

TEST(TableTest, letters_beyond_ascii_are_one_column_wide) {
  Table table({"A", "B"});
  table.add({"é", "1"});
  table.add({"e", "2"});
  EXPECT_EQ(table.text(), "A  B\né  1\ne  2\n");
}

TEST(TableTest, nothing_that_is_shown_can_command_the_terminal) {
  EXPECT_EQ(printable("a\x1b]0;title\x07"), "a\\x1b]0;title\\x07");
  EXPECT_EQ(printable("line\nbreak"), "line\\x0abreak");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");  // CSI in one character.
  EXPECT_EQ(printable("\xff"
                      "caf\xc3\xa9"),
            "\\xff"
            "caf\xc3\xa9");
  EXPECT_EQ(printable("cut \xe2\x82"), "cut \\xe2\\x82");
}

}  // namespace
}  // namespace gyre::cli
