// The promises of the third workload: the networks as published, and what makes batch normalisation right.
#include "workloads/resnet50/resnet50.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gyre/base/error.h"

namespace gyre::resnet50 {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(Resnet, what_cannot_be_a_network_or_a_data_set_is_named) {
  train::LocalExchange exchange;
  const auto failure = [&](const Options& options) -> std::string {
    try {
      run_training(options, exchange);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing failed";
  };
  std::string pattern = (fs::temp_directory_path() / "gyre-resnet50-test-XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  Options options;
  options.data_dir = folder / "absent";
  EXPECT_THAT(failure(options), HasSubstr("absent"));
  options.data_dir = folder;
  EXPECT_THAT(failure(options), HasSubstr("neither a folder train nor files train-*"));
  fs::remove_all(folder);
  EXPECT_THROW(check_batch(1, 32), Error);  // As PyTorch: the variance of one value.
  EXPECT_NO_THROW(check_batch(2, 32));
  EXPECT_NO_THROW(check_batch(1, 33));
}

}  // namespace
}  // namespace gyre::resnet50
