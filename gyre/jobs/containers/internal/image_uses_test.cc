// Images that were built are removed to make room while jobs of the machine come and go: never one that a job is about
// to start a container of.
#include "gyre/jobs/containers/internal/image_uses.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace gyre::jobs::containers::internal {
namespace {

namespace fs = std::filesystem;

class ImageUsesTest : public testing::Test {
 protected:
  ImageUsesTest() {
    std::string name = "/tmp/gyre-image-uses-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~ImageUsesTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(ImageUsesTest, what_somebody_uses_nobody_takes) {
  const ImageUses uses(folder_ / "uses");
  UniqueFd first = uses.use("a");
  UniqueFd second = ImageUses(folder_ / "uses").use("a");
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(uses.take("a"));
  first.reset();
  EXPECT_FALSE(uses.take("a"));
  second.reset();
  const UniqueFd taken = uses.take("a");
  EXPECT_TRUE(taken);
  EXPECT_FALSE(uses.take("a"));
}

TEST_F(ImageUsesTest, a_use_is_remembered_until_its_image_goes) {
  const ImageUses uses(folder_ / "uses");
  EXPECT_EQ(uses.last_use("a"), fs::file_time_type::min());
  uses.use("a").reset();
  fs::last_write_time(folder_ / "uses/a", fs::file_time_type::clock::now() - std::chrono::hours(5));
  const auto before = uses.last_use("a");
  uses.use("a").reset();
  EXPECT_GT(uses.last_use("a"), before);
  uses.forget("a");
  EXPECT_EQ(uses.last_use("a"), fs::file_time_type::min());
}

TEST_F(ImageUsesTest, images_that_were_built_are_found_in_podmans_list) {
  const auto found = built_images_of(
      R"([{"Id": "1", "Names": ["localhost/gyre-built:ab", "localhost/other:1"], "Size": 17},
          {"Id": "2", "Names": ["localhost/gyre-built-not:cd"], "Size": 5},
          {"Id": "3", "Names": null}, {"Id": "4"}, 5, {"Names": ["localhost/gyre-built:ef", 7], "Size": "x"}])");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].key, "ab");
  EXPECT_EQ(found[0].bytes, 17U);
  EXPECT_EQ(found[1].key, "ef");
  EXPECT_EQ(found[1].bytes, 0U);
  for (const char* list : {"", "{}", "[", "null"}) EXPECT_TRUE(built_images_of(list).empty()) << list;
}

}  // namespace
}  // namespace gyre::jobs::containers::internal
