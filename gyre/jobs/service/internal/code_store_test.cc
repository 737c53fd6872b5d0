// An upload that was confirmed must be there after a power failure: a job that names the code is queued by then.
#include "gyre/jobs/service/internal/code_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

namespace {

/// What was made durable while it is not null: folders with what was in them then.
std::set<std::string>* synced = nullptr;

void note(int fd) {
  std::error_code ignored;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored);
  if (!std::filesystem::is_directory(path, ignored)) return;
  synced->insert(path);
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) synced->insert(entry.path());
}

}  // namespace

// Instead of the C library's, in this program.
extern "C" int fsync(int fd) {
  if (synced != nullptr) note(fd);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace gyre::jobs::service {
namespace {

namespace fs = std::filesystem;
using testing::Contains;

class CodeStoreTest : public testing::Test {
 protected:
  CodeStoreTest() {
    std::string name = "/tmp/gyre-code-store-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    std::ofstream(folder_ / "upload") << "an archive";
  }
  ~CodeStoreTest() override {
    synced = nullptr;
    fs::remove_all(folder_);
  }
  void upload(CodeStore& store, const std::string& sha256) const {
    store.store(7, sha256, UniqueFd(::open((folder_ / "upload").c_str(), O_RDONLY | O_CLOEXEC)), 10);
  }
  fs::path folder_;
};

TEST_F(CodeStoreTest, an_archive_and_the_folders_made_for_it_survive_a_power_failure) {
  std::set<std::string> durable;
  synced = &durable;
  CodeStore store(folder_ / "code");
  upload(store, "abc");
  EXPECT_THAT(durable, Contains((folder_ / "code/7/abc.tar").string()));
  EXPECT_THAT(durable, Contains((folder_ / "code/7").string()));
  EXPECT_THAT(durable, Contains((folder_ / "code").string()));
}

TEST_F(CodeStoreTest, what_nobody_uses_goes_after_a_day_and_what_was_asked_for_since_stays) {
  CodeStore store(folder_ / "code");
  for (const char* name : {"used", "old", "wanted", "new"}) {
    upload(store, name);
    if (std::string(name) != "new") {
      fs::last_write_time(store.path(7, name), fs::file_time_type::clock::now() - std::chrono::hours(25));
    }
  }
  EXPECT_TRUE(store.keep_for_a_day(7, "wanted"));
  EXPECT_FALSE(store.keep_for_a_day(7, "missing"));
  store.remove_unused([](catalog::Id workspace, const std::string& code) { return workspace == 7 && code == "used"; });
  EXPECT_TRUE(store.has(7, "used"));
  EXPECT_FALSE(store.has(7, "old"));
  EXPECT_TRUE(store.has(7, "wanted"));
  EXPECT_TRUE(store.has(7, "new"));
}

}  // namespace
}  // namespace gyre::jobs::service
