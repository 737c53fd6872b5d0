// A job's container starts without asking podman again what it has said of the image, and yet never in an image that
// the name meant before.
#include "gyre/jobs/containers/internal/image_notes.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace gyre::jobs::containers::internal {
namespace {

namespace fs = std::filesystem;

class ImageNotesTest : public testing::Test {
 protected:
  ImageNotesTest() {
    std::string name = "/tmp/gyre-image-notes-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~ImageNotesTest() override { fs::remove_all(folder_); }

  void write_list(const std::string& text) const { std::ofstream(folder_ / "images.json") << text; }
  ImageNotes notes() const { return {folder_ / "notes.json", {folder_ / "images.json", folder_ / "none.json"}}; }

  fs::path folder_;
};

TEST_F(ImageNotesTest, what_was_said_holds_until_a_list_changes) {
  write_list("[1]");
  const std::string state = notes().state();
  EXPECT_FALSE(notes().find("train:1", state));
  notes().keep("train:1", state, "id amd64 digest");
  notes().keep("train:2", state, "other amd64 digest");
  EXPECT_EQ(notes().find("train:1", notes().state()), "id amd64 digest");
  EXPECT_EQ(notes().find("train:2", notes().state()), "other amd64 digest");

  write_list("[1, 2]");
  EXPECT_FALSE(notes().find("train:1", notes().state()));
  notes().keep("train:2", notes().state(), "new amd64 digest");
  EXPECT_FALSE(notes().find("train:1", notes().state())) << "it is of the state before";
  EXPECT_EQ(notes().find("train:2", notes().state()), "new amd64 digest");
}

TEST_F(ImageNotesTest, a_list_that_comes_or_goes_is_a_change) {
  write_list("[1]");
  const std::string state = notes().state();
  notes().keep("train:1", state, "id amd64 digest");
  std::ofstream(folder_ / "none.json") << "[]";
  EXPECT_FALSE(notes().find("train:1", notes().state()));
  fs::remove(folder_ / "none.json");
  EXPECT_TRUE(notes().find("train:1", notes().state()));
  fs::remove(folder_ / "images.json");
  EXPECT_EQ(notes().state(), "") << "nothing would show a change";
  notes().keep("train:1", "", "id amd64 digest");
  EXPECT_FALSE(notes().find("train:1", ""));
}

TEST_F(ImageNotesTest, what_was_said_of_an_id_holds_whatever_changes) {
  write_list("[1]");
  notes().keep_id("abc", "abc amd64 digest");
  write_list("[1, 2]");
  notes().keep("train:1", notes().state(), "id amd64 digest");
  EXPECT_EQ(notes().find_id("abc"), "abc amd64 digest");
  EXPECT_FALSE(notes().find_id("abd"));
}

TEST_F(ImageNotesTest, a_file_that_is_not_ours_is_as_none) {
  write_list("[1]");
  for (const char* text : {"", "{", "[]", R"({"state": 1, "names": [], "ids": 7})", R"({"ids": {"abc": 1}})"}) {
    std::ofstream(folder_ / "notes.json") << text;
    EXPECT_FALSE(notes().find("train:1", notes().state())) << text;
    EXPECT_FALSE(notes().find_id("abc")) << text;
  }
  notes().keep_id("abc", "abc amd64 digest");
  EXPECT_EQ(notes().find_id("abc"), "abc amd64 digest");
}

}  // namespace
}  // namespace gyre::jobs::containers::internal
