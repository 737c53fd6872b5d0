// A suggestion that is wrong is worse than none: it sends the reader away.
#include "gyre/cli/suggest.h"

#include <gtest/gtest.h>

namespace gyre::cli {
namespace {

const std::vector<std::string> kKnown = {"--batch-size", "--epochs", "--lr", "--data-dir", "--model-dir"};

TEST(suggest, an_option_with_a_letter_missing_swapped_or_changed_is_recognised) {
  EXPECT_EQ(nearest("--bach-size", kKnown), "--batch-size");
  EXPECT_EQ(nearest("--data-dri", kKnown), "--data-dir");
  EXPECT_EQ(nearest("--epocs", kKnown), "--epochs");
  EXPECT_EQ(nearest("--batch", kKnown), "--batch-size");
}

TEST(suggest, what_resembles_nothing_gets_no_suggestion) {
  EXPECT_EQ(nearest("--verbosity", kKnown), std::nullopt);
  EXPECT_EQ(nearest("--", kKnown), std::nullopt);
  EXPECT_EQ(no_such_option("--verbosity", kKnown), "unknown option --verbosity");
  EXPECT_EQ(no_such_option("--epocs", kKnown), "unknown option --epocs; did you mean --epochs?");
}

}  // namespace
}  // namespace gyre::cli
