// How many GPUs a job gets depends on how many are counted. No GPU is needed: files stand for them.
#include "gyre/base/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Gpus, are_those_of_the_mask_where_there_is_one) {
  EXPECT_THAT(find_gpus("2,GPU-5", "/nowhere"), ElementsAre("2", "GPU-5"));
  for (const char* none : {"", "-1", "NoDevFiles", "nonsense", " ", ",0", "1,1", "GPU-5,2,GPU-5"}) {
    EXPECT_THAT(find_gpus(none, "/nowhere"), IsEmpty()) << none;
  }
  EXPECT_THAT(find_gpus("0,-1,1", "/nowhere"), ElementsAre("0"));
  EXPECT_THAT(find_gpus("0,,1", "/nowhere"), ElementsAre("0"));
  EXPECT_THAT(find_gpus(" 3 , MIG-a/1/2,junk,4", "/nowhere"), ElementsAre("3", "MIG-a/1/2"));
}

TEST(Gpus, are_counted_by_their_device_files_whatever_their_numbers_are) {
  std::string pattern = "/tmp/gyre-gpus-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  EXPECT_EQ(count_gpus(std::nullopt, folder / "nothing"), 0);
  for (const char* name : {"nvidia1", "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia", "null"}) {
    std::ofstream(folder / name) << "";
  }
  EXPECT_THAT(find_gpus(std::nullopt, folder), ElementsAre("0", "1"));
  EXPECT_THAT(find_gpus("1,2,0", folder), ElementsAre("1")) << "there is no third";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gyre
