// What a job leaves in its work folder is lost if it is not kept, and the job may have left anything there: links to
// other people's files, pipes on which a reader waits for ever, more than the disk can take.
#include "gyre/jobs/node/internal/work_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "gyre/base/acting_as.h"
#include "gyre/base/file.h"

namespace gyre::jobs::node::internal {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const UserId kSomebody{60'001, 60'002, {60'003}};

class WorkFilesTest : public testing::Test {
 protected:
  WorkFilesTest() {
    std::string name = "/tmp/gyre-work-files-XXXXXX";
    top_ = ::mkdtemp(name.data());
    fs::permissions(top_, fs::perms::all);
    fs::create_directory(top_ / "folder");
    files_ = {.folder = top_ / "folder", .patterns = {"**"}, .kept = top_ / "kept"};
  }
  ~WorkFilesTest() override {
    for (const auto& entry : fs::recursive_directory_iterator(top_, fs::directory_options::skip_permission_denied)) {
      std::error_code ignored;
      if (entry.is_directory(ignored)) fs::permissions(entry.path(), fs::perms::all, ignored);
    }
    fs::remove_all(top_);
  }

  void write(const std::string& path, const std::string& text = "12345") const {
    const fs::path file = top_ / "folder" / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }

  WorkFilesReport keep(const Interruption& interruption = [] { return ""; }) const {
    return keep_work_files(files_, interruption);
  }

  /// The paths of all copies.
  std::vector<std::string> copies() const {
    std::vector<std::string> paths;
    if (!fs::exists(files_.kept)) return paths;
    for (const auto& entry : fs::recursive_directory_iterator(files_.kept)) {
      if (!entry.is_directory()) paths.push_back(entry.path().lexically_relative(files_.kept));
    }
    std::ranges::sort(paths);
    return paths;
  }
  std::string copy(const std::string& path) const {
    std::ostringstream text;
    text << std::ifstream(files_.kept / path, std::ios::binary).rdbuf();
    return text.str();
  }

  fs::path top_;
  WorkFiles files_;
};

TEST_F(WorkFilesTest, files_that_a_pattern_names_are_copied_and_the_others_are_counted) {
  write("model.pt", "weights");
  write("out/deep/b.pt");
  write("notes.txt", "1234567890");
  write("out/c.csv");
  files_.patterns = {"*.pt"};
  const WorkFilesReport report = keep();
  EXPECT_THAT(copies(), ElementsAre("model.pt", "out/deep/b.pt"));
  EXPECT_EQ(copy("model.pt"), "weights");
  EXPECT_THAT(sentences_of(report),
              ElementsAre("2 files in the job's work folder (15 B) are not kept: notes.txt, out/c.csv; `--output "
                          "PATTERN` keeps such files",
                          "2 files in the job's work folder (12 B) are kept in output directory 'work': model.pt, "
                          "out/deep/b.pt"));
}

TEST_F(WorkFilesTest, without_patterns_nothing_is_copied_and_an_empty_folder_is_not_worth_a_word) {
  files_.patterns = {};
  EXPECT_THAT(sentences_of(keep()), IsEmpty());
  for (const char* name : {"d", "b", "a", "c"}) write(name);
  write("__pycache__/x.pyc");
  EXPECT_THAT(sentences_of(keep()),
              ElementsAre(HasSubstr("4 files in the job's work folder (20 B) are not kept: a, b, c, …;")));
  EXPECT_FALSE(fs::exists(files_.kept));
}

TEST_F(WorkFilesTest, a_pattern_that_nothing_matches_is_reported) {
  write("model.pt");
  files_.patterns = {"*.pt", "*.PT", "results/"};
  EXPECT_THAT(keep().unmatched, ElementsAre("*.PT", "results/"));
  EXPECT_THAT(sentences_of(keep()).front(), HasSubstr("matches --output '*.PT', 'results/'"));
}

TEST_F(WorkFilesTest, the_code_is_not_new_unless_the_job_has_changed_it) {
  for (const char* name : {"same.py", "lib/touched.py", "longer.py", "edited.py", "replaced.py"}) write(name);
  fs::create_symlink("same.py", files_.folder / "link");
  fs::create_symlink("same.py", files_.folder / "moved");
  ASSERT_EQ(std::system(fmt::format("tar -cf {0}/code.tar -C {0}/folder .", top_.string()).c_str()), 0);
  const CodeContent code(UniqueFd(::open((top_ / "code.tar").c_str(), O_RDONLY | O_CLOEXEC)).get());
  files_.code = &code;
  EXPECT_THAT(sentences_of(keep()), ElementsAre(HasSubstr("no file that the job has written")));
  write("lib/touched.py");
  write("longer.py", "123456");
  write("edited.py", "1234x");
  fs::remove(files_.folder / "replaced.py");
  fs::create_symlink("same.py", files_.folder / "replaced.py");
  fs::remove(files_.folder / "moved");
  fs::create_symlink("edited.py", files_.folder / "moved");
  write("new");
  const WorkFilesReport report = keep();
  EXPECT_THAT(copies(), ElementsAre("edited.py", "longer.py", "new"));
  EXPECT_THAT(report.failed.names, ElementsAre("moved (a link)", "replaced.py (a link)"));
}

// A job may leave links to any file in the hope that the node program, which may be root's, copies it.
TEST_F(WorkFilesTest, no_link_is_followed_and_nothing_but_regular_files_is_read) {
  fs::create_symlink("/etc/passwd", files_.folder / "file link");
  fs::create_directory_symlink("/etc", files_.folder / "folder link");
  ASSERT_EQ(::mkfifo((files_.folder / "pipe").c_str(), 0666), 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (files_.folder / "sock").string().copy(static_cast<char*>(address.sun_path), sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const WorkFilesReport report = keep();
  ::close(socket);
  EXPECT_THAT(copies(), IsEmpty());
  EXPECT_EQ(report.failed.files, 4U);
  EXPECT_THAT(report.failed.names, ElementsAre("file link (a link)", "folder link (a link)", "pipe (a pipe)"));
  EXPECT_THAT(report.unmatched, IsEmpty()) << "it has matched something";
}

TEST_F(WorkFilesTest, a_file_that_is_swapped_for_a_link_while_it_is_copied_never_brings_what_the_link_leads_to) {
  std::ofstream(top_ / "secret") << "secret";
  fs::create_directory(top_ / "elsewhere");
  std::ofstream(top_ / "elsewhere" / "file") << "secret";
  write("file", "mine");
  write("folder/file", "mine");
  std::atomic<bool> done{false};
  std::thread attacker([&] {
    fs::create_symlink(top_ / "secret", files_.folder / "link");
    fs::create_directory_symlink(top_ / "elsewhere", files_.folder / "folder link");
    const auto swap = [&](const char* a, const char* b) {
      ::renameat2(AT_FDCWD, (files_.folder / a).c_str(), AT_FDCWD, (files_.folder / b).c_str(), RENAME_EXCHANGE);
    };
    while (!done) {
      swap("file", "link");
      swap("folder", "folder link");
    }
  });
  int copied = 0;
  for (int round = 0; round < 300; ++round) {
    keep();
    for (const std::string& path : copies()) {
      ++copied;
      EXPECT_EQ(copy(path), "mine") << path;
    }
  }
  done = true;
  attacker.join();
  EXPECT_GT(copied, 0);
}

// One folder of such a name made the download of all files fail.
TEST_F(WorkFilesTest, names_may_hold_any_bytes_and_those_that_cannot_be_downloaded_are_reported) {
  const std::string name = "a\nb\xff\x1b[31m \xc3\xa9";
  write(name, "x");
  write("c\nd/file");
  write("back\\slash");
  write(" \xc3\xa9 ", "z");
  write(std::string(200, 'n') + "/" + std::string(200, 'm'), "y");
  const WorkFilesReport report = keep();
  EXPECT_EQ(copy(" \xc3\xa9 "), "z");
  EXPECT_EQ(copies().size(), 2U);
  EXPECT_THAT(report.kept.names, ElementsAre(" \xc3\xa9 ", "…" + std::string(80, 'm')));
  EXPECT_THAT(report.failed.names,
              ElementsAre("a\\x0ab\\xff\\x1b[31m \xc3\xa9 (it cannot be downloaded under this name)",
                          "back\\slash (it cannot be downloaded under this name)",
                          "c\\x0ad/file (it cannot be downloaded under this name)"));
}

TEST_F(WorkFilesTest, holes_permissions_and_times_are_kept_and_setuid_is_not) {
  write("sparse", "head");
  fs::resize_file(files_.folder / "sparse", std::uintmax_t{8} << 30);
  write("program");
  fs::permissions(files_.folder / "program", fs::perms(04750));
  const timespec times[2] = {{.tv_sec = 1'000'000'000, .tv_nsec = 5}, {.tv_sec = 1'000'000'000, .tv_nsec = 5}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (files_.folder / "program").c_str(), times, 0), 0);
  EXPECT_THAT(keep().failed.names, IsEmpty());
  struct stat status{};
  ASSERT_EQ(::stat((files_.kept / "sparse").c_str(), &status), 0);
  EXPECT_EQ(status.st_size, off_t{8} << 30);
  EXPECT_LT(status.st_blocks, 1'000);
  ASSERT_EQ(::stat((files_.kept / "program").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0750U);
  EXPECT_EQ(status.st_mtim.tv_sec, 1'000'000'000);
}

TEST_F(WorkFilesTest, the_copies_of_a_later_attempt_replace_those_of_an_earlier_one_once_there_are_any) {
  write("first");
  keep();
  fs::remove(files_.folder / "first");
  keep();
  EXPECT_THAT(copies(), ElementsAre("first"));
  write("second");
  keep();
  EXPECT_THAT(copies(), ElementsAre("second"));
  // The job can put a link in the place.
  fs::remove_all(files_.kept);
  fs::create_directory(top_ / "elsewhere");
  std::ofstream(top_ / "elsewhere" / "precious") << "x";
  fs::create_directory_symlink(top_ / "elsewhere", files_.kept);
  keep();
  EXPECT_TRUE(fs::exists(top_ / "elsewhere" / "precious"));
  EXPECT_FALSE(fs::exists(top_ / "elsewhere" / "second"));
  EXPECT_THAT(copies(), ElementsAre("second"));
}

TEST_F(WorkFilesTest, the_nodes_own_files_and_the_copies_themselves_are_left_out) {
  for (const char* name : {"hostfile", "mounts/data", "logs/stdout.txt", "mine", ".cache/x", "out/.hidden"})
    write(name);
  files_.others = {files_.folder / "hostfile", files_.folder / "mounts", files_.folder / "logs", "/none"};
  files_.kept = files_.folder / "a" / "work";
  fs::create_directory(files_.folder / "a");
  files_.is_home = true;
  files_.patterns = {"mine", "a"};
  const WorkFilesReport report = keep();
  EXPECT_THAT(copies(), ElementsAre("mine"));
  EXPECT_THAT(report.left.names, ElementsAre("out/.hidden"));
  files_.patterns = {"**"};
  keep();
  EXPECT_THAT(copies(), ElementsAre(".cache/x", "mine", "out/.hidden"));
}

TEST_F(WorkFilesTest, a_deep_or_large_tree_ends_at_a_limit_and_is_reported) {
  fs::path deep;
  for (int depth = 0; depth < 200; ++depth) deep /= "d";
  write(deep / "lost");
  for (int i = 0; i < 1'000; ++i) write(fmt::format("many/{}", i), "");
  const WorkFilesReport report = keep();
  EXPECT_EQ(report.kept.files, 1'000U);
  EXPECT_EQ(report.failed.files, 1U);
  EXPECT_THAT(report.failed.names.front(), HasSubstr("more than 128 folders deep"));
}

TEST_F(WorkFilesTest, an_interruption_ends_it_and_what_was_copied_stays) {
  for (int i = 0; i < 10; ++i) write(std::to_string(i));
  int calls = 0;
  const WorkFilesReport report = keep([&] { return ++calls > 10 ? "the node was asked to end" : ""; });
  EXPECT_EQ(copies().size(), report.kept.files);
  EXPECT_GT(report.kept.files, 0U);
  EXPECT_LT(report.kept.files, 10U);
  EXPECT_THAT(sentences_of(report),
              testing::Contains("not all of the job's work folder was looked at: the node was asked to end"));
}

TEST_F(WorkFilesTest, a_file_that_grows_while_it_is_copied_is_kept_as_far_as_it_went_and_named) {
  write("log", std::string(100'000, 'x'));
  const WorkFilesReport report = keep([&] {
    std::ofstream(files_.folder / "log", std::ios::app) << "more";
    return "";
  });
  EXPECT_THAT(report.failed.names, ElementsAre("log (changed while it was copied)"));
  EXPECT_GE(copy("log").size(), 100'000U);
}

TEST_F(WorkFilesTest, a_full_disk_ends_the_copying_with_its_reason_and_leaves_no_part) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount a small file system";
  fs::create_directory(top_ / "small");
  ASSERT_EQ(::mount("tmpfs", (top_ / "small").c_str(), "tmpfs", 0, "size=64k"), 0);
  files_.kept = top_ / "small" / "work";
  write("a/large", std::string(200'000, 'x'));
  write("b/large", std::string(200'000, 'x'));
  const WorkFilesReport report = keep();
  EXPECT_THAT(copies(), IsEmpty());
  EXPECT_THAT(report.failed.names,
              ElementsAre("a/large (No space left on device)", "b/large (No space left on device)"));
  ASSERT_EQ(::umount((top_ / "small").c_str()), 0);
}

// The process of an attempt has the job's account.
TEST_F(WorkFilesTest, with_the_rights_of_another_user_nothing_is_copied_that_this_user_cannot_read) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as others";
  write("roots", "secret");
  fs::permissions(files_.folder / "roots", fs::perms(0600));
  write("locked/file");
  fs::permissions(files_.folder / "locked", fs::perms(0700));
  write("readable");
  fs::create_hard_link("/etc/shadow", files_.folder / "shadow");
  const WorkFilesReport report = [&] {
    const ActingAs somebody(kSomebody);
    return keep();
  }();
  EXPECT_THAT(copies(), ElementsAre("readable"));
  EXPECT_THAT(report.failed.names,
              ElementsAre("locked/ (Permission denied)", "roots (Permission denied)", "shadow (Permission denied)"));
  struct stat status{};
  ASSERT_EQ(::stat((files_.kept / "readable").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, kSomebody.user);
}

TEST_F(WorkFilesTest, a_folder_that_is_not_there_is_a_sentence) {
  fs::remove_all(files_.folder);
  EXPECT_THAT(sentences_of(keep()).front(), HasSubstr(". (No such file or directory)"));
}

}  // namespace
}  // namespace gyre::jobs::node::internal
