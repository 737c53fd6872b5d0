#include "gyre/params/consistency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::params {
namespace {

TEST(Consistency, each_form_says_what_servers_and_workers_do) {
  EXPECT_TRUE(parse_consistency("sync").is_plain_sync());
  EXPECT_EQ(parse_consistency("sync:continue").servers, ConsistencyOptions{.survives_losses = true});
  EXPECT_EQ(parse_consistency("async").servers,
            (ConsistencyOptions{.kind = Consistency::kAsync, .survives_losses = true}));
  EXPECT_EQ(parse_consistency("bounded:3").servers.staleness, 3U);
  EXPECT_EQ(parse_consistency("bounded:0").servers.kind, Consistency::kBounded);
  EXPECT_EQ(parse_consistency("backup:2").servers.backup_workers, 2);
  EXPECT_EQ(parse_consistency("local:50").local_steps, 50U);
  EXPECT_FALSE(parse_consistency("local:50").needs_servers());
  EXPECT_TRUE(parse_consistency("sync:continue").needs_servers());
  EXPECT_EQ(parse_consistency("local:8:bmuf").outer, OuterOptimizer::kBmuf);
  EXPECT_EQ(parse_consistency("local:8:nesterov").outer, OuterOptimizer::kNesterov);
}

TEST(Consistency, anything_else_is_an_error_that_names_the_forms) {
  for (const char* text : {"", "Sync", "asynch", "async:2", "backup", "backup:0", "backup:x", "backup:-1", "bounded",
                           "bounded:1:2", "local:0", "local:", "local:5:adam", "local:5:bmuf:1", "sync:stop"}) {
    EXPECT_THROW(parse_consistency(text), Error) << text;
  }
  try {
    parse_consistency("asynch");
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'asynch' is none of: sync, "));
  }
}

TEST(Consistency, outer_rules_have_the_papers_constants) {
  EXPECT_EQ(outer_rule(OuterOptimizer::kAverage, 4).momentum, 0);
  EXPECT_EQ(outer_rule(OuterOptimizer::kBmuf, 4).momentum, 0.75);
  EXPECT_EQ(outer_rule(OuterOptimizer::kNesterov, 4).momentum, 0.9);
  EXPECT_TRUE(outer_rule(OuterOptimizer::kNesterov, 4).nesterov);
  EXPECT_EQ(outer_rule(OuterOptimizer::kBmuf, 1).rate, 1);
  EXPECT_EQ(outer_rule(OuterOptimizer::kNesterov, 1).rate, 0.7);
}

}  // namespace
}  // namespace gyre::params
