// A model that took a week to train must not arrive with a hole in it.
#include "gyre/jobs/client/download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "gyre/base/error.h"
#include "gyre/jobs/client/client_test_support.h"

namespace gyre::jobs::client {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class DownloadTest : public ClientTest {
 protected:
  static std::string content_of(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  static std::vector<std::string> names_of(const std::vector<RemoteFile>& files) {
    std::vector<std::string> names;
    for (const RemoteFile& file : files) names.push_back(file.path);
    return names;
  }
};

TEST_F(DownloadTest, directories_are_listed_with_all_below_them) {
  write_log("j", "stdout.txt", "hello");
  write_log("j", "deep/er/file.bin", "12345678");
  Session session = session_of("ada-token");
  EXPECT_THAT(names_of(list_files(session, kPlace, "stdouterr", "", false)), ElementsAre("deep", "stdout.txt"));
  EXPECT_THAT(names_of(list_files(session, kPlace, "stdouterr", "", true)),
              ElementsAre("deep", "deep/er", "deep/er/file.bin", "stdout.txt"));
  const auto below = list_files(session, kPlace, "stdouterr", "/deep/er/", false);
  ASSERT_EQ(below.size(), 1U);
  EXPECT_EQ(below.front().path, "deep/er/file.bin");
  EXPECT_EQ(below.front().bytes, 8U);
}

TEST_F(DownloadTest, a_file_of_several_parts_arrives_byte_for_byte) {
  std::string content(20'000'000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2654435761U >> 13);
  write_log("j", "model.bin", content);
  Session session = session_of("ada-token");
  const fs::path target = directory_ / "to" / "model.bin";
  EXPECT_EQ(download(session, kPlace, "stdouterr", "model.bin", target), content.size());
  EXPECT_TRUE(content_of(target) == content);
  EXPECT_FALSE(fs::exists(target.string() + ".part"));
}

TEST_F(DownloadTest, an_empty_file_arrives_too) {
  write_log("j", "empty", "");
  Session session = session_of("ada-token");
  EXPECT_EQ(download(session, kPlace, "stdouterr", "empty", directory_ / "empty"), 0U);
  EXPECT_TRUE(fs::exists(directory_ / "empty"));
}

TEST_F(DownloadTest, a_file_that_does_not_exist_leaves_nothing_behind) {
  Session session = session_of("ada-token");
  EXPECT_THROW(download(session, kPlace, "stdouterr", "none", directory_ / "none"), Error);
  EXPECT_FALSE(fs::exists(directory_ / "none"));
  EXPECT_FALSE(fs::exists(directory_ / "none.part"));
}

TEST_F(DownloadTest, paths_that_lead_out_are_refused_here_already) {
  EXPECT_THROW(checked_segments("../secret"), Error);
  EXPECT_THROW(checked_segments("a/./b"), Error);
  EXPECT_THAT(checked_segments("/a//b/"), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace gyre::jobs::client
