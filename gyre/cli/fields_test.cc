// What `gyre job show` prints: people read it on narrow terminals, and programs without one.
#include "gyre/cli/fields.h"

#include <gtest/gtest.h>

#include "gyre/cli/live_block.h"

namespace gyre::cli {
namespace {

TEST(Fields, stand_in_two_columns) {
  EXPECT_EQ(fields_text({{"job", "train"}, {"exit code", "3"}, {"image", ""}}, 0), "job        train\nexit code  3\n");
}

TEST(Fields, long_values_go_on_below_themselves_on_a_terminal) {
  const std::string error = "PreparationFailed: the job's preparation failed on node n1 with exit code 7";
  EXPECT_EQ(fields_text({{"state", "failed"}, {"error", error}}, 40),
            "state  failed\n"
            "error  PreparationFailed: the job's\n"
            "       preparation failed on node n1\n"
            "       with exit code 7\n");
  EXPECT_EQ(fields_text({{"error", error}}, 0), "error  " + error + "\n") << "a program gets one line";
}

TEST(Fields, lines_of_a_value_stay_lines) {
  EXPECT_EQ(fields_text({{"error", "first\nsecond \x1b[1m"}, {"n", "1"}}, 0),
            "error  first\n       second \\x1b[1m\nn      1\n");
}

TEST(Fields, a_long_word_stays_whole) {
  EXPECT_EQ(fields_text({{"logs", "in /a/very/long/path/that/is/to/be/copied twice"}}, 32),
            "logs  in\n      /a/very/long/path/that/is/to/be/copied\n      twice\n");
}

TEST(Fields, of_a_very_narrow_terminal_stand_below_their_names) {
  EXPECT_EQ(fields_text({{"next attempt", "not before noon"}, {"job", "a"}}, 20),
            "next attempt\n  not before noon\njob\n  a\n");
}

TEST(Fields, no_line_is_wider_than_any_terminal_that_has_room_for_its_words) {
  const std::string value =
      "words of several lengths, w\xc3\xa4ren sie auch \xe6\x97\xa5\xe6\x9c\xac, and so on to the end";
  for (int columns = 14; columns < 120; ++columns) {
    const std::string text = fields_text({{"name", value}, {"error", value}}, columns);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      EXPECT_LE(columns_of(text.substr(begin, end - begin)), columns) << text;
      begin = end + 1;
    }
  }
}

}  // namespace
}  // namespace gyre::cli
