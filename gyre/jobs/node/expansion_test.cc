// Job files of Batch AI refer to variables in paths and in values of other variables; a node must read them alike.
#include "gyre/jobs/node/expansion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyre::jobs::node {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Expansion, both_forms_are_replaced) {
  const Expanded result = expand("$A/${B}x/$A", {{"A", "one"}, {"B", "two"}});
  EXPECT_EQ(result.text, "one/twox/one");
  EXPECT_THAT(result.unset, IsEmpty());
}

TEST(Expansion, a_name_ends_where_letters_digits_and_underscores_end) {
  const Variables variables = {{"AZ_BATCHAI_OUTPUT_A1", "out"}, {"AZ", "wrong"}};
  EXPECT_EQ(expand("$AZ_BATCHAI_OUTPUT_A1/$AZ_BATCHAI_OUTPUT_A1.txt", variables).text, "out/out.txt");
}

// The distributed TensorFlow recipe refers to an input that it does not define.
TEST(Expansion, an_unset_name_becomes_empty_and_is_reported_once) {
  const Expanded result = expand("--data=$MISSING --more=${MISSING}$OTHER", {});
  EXPECT_EQ(result.text, "--data= --more=");
  EXPECT_THAT(result.unset, ElementsAre("MISSING", "OTHER"));
}

TEST(Expansion, other_dollars_stay) {
  for (const char* text : {"$", "100$", "$$", "$1", "${", "${}", "${A", "${A-b}", "$(ls)", "${1}"}) {
    EXPECT_EQ(expand(text, {{"A", "x"}}).text, text);
  }
}

// A value that contains a reference, a secret for instance, must arrive as it is.
TEST(Expansion, values_are_not_expanded_again) { EXPECT_EQ(expand("$A", {{"A", "$B"}, {"B", "x"}}).text, "$B"); }

TEST(Expansion, names_of_a_shell_line_are_listed) {
  EXPECT_THAT(referenced_names("cd $A && echo ${B} $A $1 $(date)"), ElementsAre("A", "B"));
}

}  // namespace
}  // namespace gyre::jobs::node
