// Another libtorch than the one compiled for must be one message at the start, not a crash in the middle of a training.
#include "gyre/train/libtorch_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::train {
namespace {

TEST(LibtorchVersionTest, the_one_that_this_was_built_with_is_right) { check_libtorch_version(); }

TEST(LibtorchVersionTest, patches_of_the_same_version_are_right_and_others_are_named) {
  check_libtorch_version("PERF=1, TORCH_VERSION=2.13.7, USE_CUDA=0", "2.13.0");
  check_libtorch_version("of a build that says nothing", "2.13.0");
  try {
    check_libtorch_version("PERF=1, TORCH_VERSION=2.14.1, USE_CUDA=0", "2.13.0");
    FAIL() << "2.14.1 passed for 2.13.0";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("built for torch 2.13.0, and torch 2.14.1 is installed"));
  }
}

}  // namespace
}  // namespace gyre::train
