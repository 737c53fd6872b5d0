#include "gyre/base/folders.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gyre/base/error.h"

namespace gyre {
namespace {

TEST(Folders, folders_are_made_through_no_link) {
  std::string name = "/tmp/gyre-folders-XXXXXX";
  const std::filesystem::path root = ::mkdtemp(name.data());
  make_folder_without_links(root / "a/b/c");
  make_folder_without_links(root / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(root / "a/b/c"));
  std::filesystem::create_directory_symlink(root / "a", root / "link");
  EXPECT_THROW(make_folder_without_links(root / "link/d"), Error);
  EXPECT_FALSE(std::filesystem::exists(root / "a/d"));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace gyre
