// A second job with the same --log-dir must not destroy what the first one has left there.
#include "gyre/launch/internal/log_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

namespace gyre::launch {
namespace {

namespace fs = std::filesystem;
using testing::UnorderedElementsAre;

class LogFolderTest : public testing::Test {
 protected:
  LogFolderTest() {
    std::string pattern = (fs::temp_directory_path() / "gyre-log-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~LogFolderTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text = "earlier\n") const {
    std::ofstream(folder_ / name) << text;
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.insert(entry.path().filename().string());
    return found;
  }

  fs::path folder_;
};

TEST_F(LogFolderTest, a_new_folder_is_made_and_an_empty_one_stays) {
  EXPECT_EQ(prepare_log_folder(folder_ / "a" / "b", {std::nullopt, 1}), 0);
  EXPECT_TRUE(fs::is_directory(folder_ / "a" / "b"));
}

TEST_F(LogFolderTest, logs_of_an_earlier_job_get_the_first_number_that_is_free_for_all) {
  for (const char* name : {"rank-0.log", "rank-1.log", "rank-1.log.2", "rank-7.log", "notes.txt", "rank-x.log"}) {
    write(name);
  }
  EXPECT_EQ(prepare_log_folder(folder_, {std::nullopt, 2}), 3);
  EXPECT_THAT(names(), UnorderedElementsAre("rank-0.log.3", "rank-1.log.3", "rank-1.log.2", "rank-7.log.3", "notes.txt",
                                            "rank-x.log"));
}

TEST_F(LogFolderTest, another_hosts_logs_in_a_shared_folder_are_left_alone) {
  for (const char* name : {"rank-0.log", "rank-2.log", "rank-9.log"}) write(name);
  const HostPart part{.node = 1, .nodes = 2, .ranks = {2, 3}, .size = 4, .rendezvous = "", .key = {}};
  EXPECT_EQ(prepare_log_folder(folder_, {part, 2}), 1);
  EXPECT_THAT(names(), UnorderedElementsAre("rank-0.log", "rank-2.log.1", "rank-9.log"));
}

TEST_F(LogFolderTest, empty_files_and_links_stay) {
  write("rank-0.log", "");
  fs::create_symlink("/dev/full", folder_ / "rank-1.log");
  EXPECT_EQ(prepare_log_folder(folder_, {std::nullopt, 2}), 0);
  EXPECT_THAT(names(), UnorderedElementsAre("rank-0.log", "rank-1.log"));
}

}  // namespace
}  // namespace gyre::launch
