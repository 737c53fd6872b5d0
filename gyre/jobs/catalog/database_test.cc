// Whatever happens to the file (damage, a full disk, a read-only one, another version), there is one clear error, and
// what was in it stays.
#include "gyre/jobs/catalog/internal/database.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <set>

#include "gyre/base/bytes.h"
#include "gyre/base/file.h"
#include "gyre/jobs/catalog/catalog_test_support.h"
#include "gyre/jobs/catalog/internal/schema.h"
#include "gyre/jobs/catalog/internal/store.h"

namespace gyre::jobs::catalog {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::int64_t number(Database& database, const std::string& sql) {
  Query query(database, sql);
  return query.next() ? query.integer(0) : -1;
}

std::string content(const std::filesystem::path& path) { return std::string(as_text(read_file(path, 1 << 26))); }

class DatabaseTest : public testing::Test {
 protected:
  /// A catalog with this many queued jobs, closed.
  void make_catalog(int jobs) const {
    Catalog catalog = Catalog::open(folder_.file());
    const Scene scene(catalog);
    for (int i = 0; i < jobs; ++i) scene.submit("j" + std::to_string(i));
  }
  /// How many of them there are, after the file was opened again.
  int jobs() const {
    Catalog catalog = Catalog::open(folder_.file());
    return static_cast<int>(catalog.jobs().unfinished().size());
  }
  /// Runs `work` in a child, where it may give up its rights, and returns what it says.
  static std::string in_child(const std::function<std::string()>& work);

  TemporaryFolder folder_;
};

std::string DatabaseTest::in_child(const std::function<std::string()>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said;
    try {
      said = work();
    } catch (const std::exception& failure) {
      said = failure.what();
    }
    [[maybe_unused]] const ssize_t written = ::write(ends[1], said.data(), said.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char buffer[512];
  for (ssize_t size = 0; (size = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<std::size_t>(size));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return said;
}

// A backup was asked for in that moment, and refused with "check who owns the file".
TEST_F(DatabaseTest, what_a_service_that_was_killed_in_its_first_change_has_left_can_be_read) {
  make_catalog(3);
  Database(folder_.file()).be_one_file();  // As a backup is.
  EXPECT_EQ(in_child([&] {
              Database database(folder_.file());
              database.execute(
                  "PRAGMA cache_size = 1; BEGIN IMMEDIATE; UPDATE jobs SET name = name || 'x', spec = "
                  "hex(zeroblob(100000));");
              ::_exit(0);  // With half of the change in the file, and a journal that undoes it.
              return std::string();
            }),
            "");
  ASSERT_TRUE(std::filesystem::exists(folder_.file().string() + "-journal"));
  Database database(folder_.file(), Database::Access::kRead);
  EXPECT_EQ(number(database, "SELECT count(*) FROM jobs WHERE name NOT LIKE '%x'"), 3);
}

TEST_F(DatabaseTest, a_newer_schema_is_refused_with_a_sentence_and_left_alone) {
  make_catalog(1);
  {
    Database database(folder_.file());
    database.execute("PRAGMA user_version = 99");
  }
  const std::string before = content(folder_.file());
  const Error error = error_of([&] { Catalog::open(folder_.file()); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("has schema version 99, and this Gyre knows versions up to 6"));
  EXPECT_EQ(content(folder_.file()), before);
}

TEST_F(DatabaseTest, an_older_schema_is_brought_up_to_date_with_all_that_is_in_it) {
  make_catalog(3);
  std::vector<std::string> steps(schema_steps().begin(), schema_steps().end());
  steps.emplace_back("ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT 'nobody'");
  {
    Database database(folder_.file());
    migrate(database, steps);
    EXPECT_EQ(number(database, "PRAGMA user_version"), static_cast<std::int64_t>(steps.size()));
    EXPECT_EQ(number(database, "SELECT count(*) FROM jobs WHERE owner = 'nobody'"), 3);
  }
  EXPECT_EQ(error_of([&] { Catalog::open(folder_.file()); }).code(), ErrorCode::kUnsupported);
}

TEST_F(DatabaseTest, a_migration_that_fails_in_the_middle_changes_nothing) {
  make_catalog(2);
  std::vector<std::string> steps(schema_steps().begin(), schema_steps().end());
  steps.emplace_back("DELETE FROM jobs; ALTER TABLE jobs ADD COLUMN owner TEXT; CREATE TABLE nonsense (");
  {
    Database database(folder_.file());
    EXPECT_THROW(migrate(database, steps), Error);
    EXPECT_EQ(number(database, "PRAGMA user_version"), static_cast<std::int64_t>(schema_steps().size()));
  }
  EXPECT_EQ(jobs(), 2);
}

TEST_F(DatabaseTest, a_file_of_another_program_is_not_touched) {
  {
    Database other(folder_.file());
    other.execute("CREATE TABLE bookmarks (url TEXT)");
  }
  const std::string before = content(folder_.file());
  EXPECT_THAT(error_of([&] { Catalog::open(folder_.file()); }).what(), HasSubstr("SQLite file of another program"));
  EXPECT_EQ(content(folder_.file()), before);
}

TEST_F(DatabaseTest, a_file_that_is_no_database_is_not_touched) {
  const std::string text = "this is my diary\n" + std::string(5000, 'x');
  std::ofstream(folder_.file()) << text;
  const Error error = error_of([&] { Catalog::open(folder_.file()); });
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(folder_.file().string()), HasSubstr("damaged or not a catalog")));
  EXPECT_EQ(content(folder_.file()), text);
}

TEST_F(DatabaseTest, damage_is_found_when_the_file_is_opened) {
  make_catalog(300);
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(folder_.file()));
  {
    std::fstream file(folder_.file(), std::ios::in | std::ios::out | std::ios::binary);
    // Inside tables and indices; the first pages hold the schema.
    for (std::streamoff at = size / 2; at < size - 4096; at += 4096) {
      file.seekp(at);
      file << std::string(2048, '\x5a');
    }
  }
  const std::string damaged = content(folder_.file());
  EXPECT_EQ(error_of([&] { Catalog::open(folder_.file()); }).code(), ErrorCode::kCorruptData);
  EXPECT_EQ(content(folder_.file()), damaged);
}

TEST_F(DatabaseTest, a_truncated_file_is_an_error) {
  make_catalog(300);
  std::filesystem::resize_file(folder_.file(), std::filesystem::file_size(folder_.file()) / 2);
  EXPECT_EQ(error_of([&] { Catalog::open(folder_.file()); }).code(), ErrorCode::kCorruptData);
}

TEST_F(DatabaseTest, a_full_database_refuses_a_change_whole_and_works_on_when_there_is_room) {
  make_catalog(1);
  Store store(UniqueFd(), folder_.file(), [] { return TimeUs{0}; });
  store.database.execute("PRAGMA max_page_count = 1");  // As many as it has.
  Jobs list(store);
  int made = 0;
  const Error error = error_of([&] {
    for (; made < 10'000; ++made) {
      list.create({.experiment = 1, .cluster = 1, .name = "k" + std::to_string(made), .spec = std::string(3000, 'x')});
    }
  });
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr(folder_.file().string()), HasSubstr("the disk is full; nothing was changed")));
  EXPECT_EQ(number(store.database, "SELECT count(*) FROM jobs"), 1 + made);
  EXPECT_EQ(number(store.database, "SELECT count(*) FROM events WHERE subject = 'job'"), 1 + made);
  store.database.execute("PRAGMA max_page_count = 1000000");
  EXPECT_NO_THROW(list.create({.experiment = 1, .cluster = 1, .name = "room", .spec = "{}"}));
}

/// A file system of our own in a mount namespace of our own.
std::string mount_small(const std::filesystem::path& folder) {
  if (::unshare(::getuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) return "no namespace";
  ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  return ::mount("none", folder.c_str(), "tmpfs", 0, "size=4m") == 0 ? "" : "no tmpfs";
}

TEST_F(DatabaseTest, a_full_disk_loses_nothing_that_was_confirmed) {
  const std::string said = in_child([&]() -> std::string {
    if (std::string problem = mount_small(folder_.path()); !problem.empty()) return problem;
    std::set<std::string> made;
    std::string complaint;
    {
      Catalog catalog = Catalog::open(folder_.file());
      const Scene scene(catalog);
      const Error error = error_of([&] {
        for (int i = 0; i < 10'000; ++i) made.insert(scene.submit("j" + std::to_string(i)).name);
      });
      complaint = std::string(error_code_name(error.code())) + ": " + error.what();
    }
    // Somebody makes room.
    if (::mount("none", folder_.path().c_str(), "tmpfs", MS_REMOUNT, "size=64m") != 0) return "no room";
    Catalog again = Catalog::open(folder_.file());
    std::set<std::string> found;
    for (const Job& job : again.jobs().unfinished()) found.insert(job.name);
    return fmt::format("{} made, {}; {}", made.size() > 20 ? "many" : "few",
                       found == made ? "all there" : "not the same", complaint);
  });
  EXPECT_THAT(said,
              testing::StartsWith("many made, all there; RESOURCE_EXHAUSTED: catalog " + folder_.file().string()));
  EXPECT_THAT(said, HasSubstr("the disk is full; nothing was changed"));
}

TEST_F(DatabaseTest, a_disk_that_is_read_only_is_an_error_that_says_so) {
  make_catalog(1);
  const std::string said = in_child([&]() -> std::string {
    if (::unshare(::getuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) return "no namespace";
    ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    const std::string folder = folder_.path().string();
    if (::mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr) != 0) return "no bind mount";
    if (::mount("none", folder.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0)
      return "not read-only";
    Catalog::open(folder_.file());
    return "opened";
  });
  EXPECT_THAT(said, AllOf(HasSubstr(folder_.file().string()), HasSubstr("cannot be written"), HasSubstr("read-only")));
  EXPECT_EQ(jobs(), 1);
}

TEST_F(DatabaseTest, a_file_of_another_user_is_an_error_that_says_so) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root to become another user";
  make_catalog(1);
  const std::string said = in_child([&]() -> std::string {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return "still root";
    Catalog::open(folder_.file());
    return "opened";
  });
  EXPECT_THAT(said, AllOf(HasSubstr(folder_.file().string()), HasSubstr("cannot be written"), HasSubstr("who owns")));
}

TEST_F(DatabaseTest, a_folder_that_does_not_exist_is_named) {
  const Error error = error_of([] { Catalog::open("/nonexistent/gyre/catalog.db"); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("/nonexistent/gyre/catalog.db"));
}

}  // namespace
}  // namespace gyre::jobs::catalog
