// People write to /dev/null, into pipes and through links: none of these may be gone afterwards.
#include "gyre/cli/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <string>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::cli {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "gyre-output-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

std::string text_of(const fs::path& file) { return std::string(as_text(read_file(file, 1000))); }

TEST_F(OutputFileTest, a_file_is_replaced_and_a_link_leads_to_it) {
  const fs::path file = folder_ / "file";
  write_output(file, as_bytes(std::string("one")));
  EXPECT_EQ(text_of(file), "one");
  fs::create_symlink("file", folder_ / "link");
  write_output(folder_ / "link", as_bytes(std::string("two")));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(text_of(file), "two");
  fs::create_symlink("new", folder_ / "dangling");
  write_output(folder_ / "dangling", as_bytes(std::string("three")));
  EXPECT_TRUE(fs::is_symlink(folder_ / "dangling"));
  EXPECT_EQ(text_of(folder_ / "new"), "three");
}

TEST_F(OutputFileTest, a_pipe_gets_the_bytes_and_stays) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto read = std::async(std::launch::async, [&] { return text_of(pipe); });
  write_output(pipe, as_bytes(std::string("all of it")));
  EXPECT_EQ(read.get(), "all of it");
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(OutputFileTest, a_device_stays_what_it_is) {
  write_output("/dev/null", as_bytes(std::string("gone")));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THROW(write_output("/dev/full", as_bytes(std::string("x"))), Error);
}

TEST_F(OutputFileTest, a_folder_and_a_circle_of_links_are_refused) {
  EXPECT_THROW(write_output(folder_, as_bytes(std::string("x"))), Error);
  fs::create_symlink("self", folder_ / "self");
  EXPECT_THROW(write_output(folder_ / "self", as_bytes(std::string("x"))), Error);
  EXPECT_TRUE(fs::is_symlink(folder_ / "self"));
}

}  // namespace
}  // namespace gyre::cli
