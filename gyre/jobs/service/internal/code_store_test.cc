// An upload that was confirmed must be there after a power failure: a job that names the code is queued by then.
#include "gyre/jobs/service/internal/code_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "gyre/jobs/resources/service_error.h"

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
    store.store(7, sha256, "ada", UniqueFd(::open((folder_ / "upload").c_str(), O_RDONLY | O_CLOEXEC)));
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

/// One user filled the server's disk, and nobody could do anything any more.
TEST_F(CodeStoreTest, an_archive_counts_for_its_user_until_it_goes_and_while_it_comes) {
  CodeStore store(folder_ / "code");
  const CodeLimits limits{.bytes_per_user = 25};
  const auto code_of = [&](const std::string& user, const std::string& sha256) -> std::string {
    try {
      static_cast<void>(store.room_for(7, sha256, user, 10, limits));
      return "";
    } catch (const resources::ServiceError& error) {
      return error.name();
    }
  };
  upload(store, "one");
  const auto coming = store.room_for(8, "two", "ada", 10, limits);
  EXPECT_EQ(code_of("ada", "three"), "TooMuchCode");
  EXPECT_EQ(code_of("ada", "one"), "");  // It is there.
  EXPECT_EQ(code_of("da", "three"), "");
  EXPECT_EQ(code_of("max", "three"), "");
  store.remove(7, "one");
  EXPECT_EQ(code_of("ada", "three"), "");
  EXPECT_TRUE(fs::is_empty(folder_ / "code/7"));
}

TEST_F(CodeStoreTest, a_part_of_the_disk_stays_free) {
  CodeStore store(folder_ / "code");
  const std::uint64_t free = fs::space(folder_).available;
  EXPECT_NO_THROW(static_cast<void>(store.room_for(7, "one", "ada", 10, {.keep_free_bytes = free / 2})));
  try {
    static_cast<void>(store.room_for(7, "one", "ada", 10, {.keep_free_bytes = free * 2}));
    FAIL() << "there was room";
  } catch (const resources::ServiceError& error) {
    EXPECT_EQ(error.name(), "DiskReserve");
  }
}

/// A second copy of an archive needed as much room again.
TEST_F(CodeStoreTest, an_upload_becomes_the_archive_without_a_copy) {
  CodeStore store(folder_ / "code");
  UniqueFd spool(::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(spool) << "the file system of /tmp has no files without a name";
  ASSERT_EQ(::write(spool.get(), "archive", 7), 7);
  store.store(7, "abc", "ada", spool);
  struct stat before{};
  struct stat after{};
  ASSERT_EQ(::fstat(spool.get(), &before), 0);
  ASSERT_EQ(::stat(store.path(7, "abc").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST_F(CodeStoreTest, whose_an_archive_is_is_forgotten_with_it) {
  CodeStore store(folder_ / "code");
  upload(store, "old");
  for (const auto& file : fs::directory_iterator(folder_ / "code/7")) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(25));
  }
  for (int i = 0; i < 2; ++i) store.remove_unused([](catalog::Id, const std::string&) { return false; });
  EXPECT_TRUE(fs::is_empty(folder_ / "code/7"));
}

}  // namespace
}  // namespace gyre::jobs::service
