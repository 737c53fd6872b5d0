// A server's folder is often there before the server: made by hand, restored from a backup, on another disk. Its rights
// must not hand the catalog, the tokens or the node programs' key to the user as whom jobs run.
#include <sys/stat.h>
#include <unistd.h>

#include "gyre/jobs/node/node_job.h"
#include "gyre/jobs/service/internal/folder_rights.h"
#include "gyre/jobs/service/service_test_support.h"

namespace gyre::jobs::service {
namespace {

mode_t mode_of(const fs::path& path) {
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

std::string refusal_of(const ServiceOptions& options) {
  try {
    guard_folder(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error.what();
  }
  return "";
}

class FolderRightsTest : public JobServiceTest {
 protected:
  FolderRightsTest() {
    fs::create_directories(options_.folder / "code");
    make_cluster(0);  // Its driver makes the key and the nodes' folder.
  }

  /// As after a backup has been restored by a program that knows of no modes.
  void open_everything() {
    service_.reset();
    ::chmod(options_.folder.c_str(), 0755);
    for (const char* name : {"catalog.db", "agents.key", "code"}) {
      ASSERT_TRUE(fs::exists(options_.folder / name)) << name;
      ::chmod((options_.folder / name).c_str(), fs::is_directory(options_.folder / name) ? 0755 : 0644);
    }
  }
};

// What a restored backup has opened is closed again, and whoever runs the server hears what was open.
TEST_F(FolderRightsTest, files_that_others_could_read_are_private_again_once_the_service_has_started) {
  open_everything();
  const std::vector<std::string> sentences = guard_folder(options_);
  ASSERT_EQ(sentences.size(), 3U);
  EXPECT_THAT(sentences[0], HasSubstr("catalog.db could be read by other users (mode 0644) and is private again"));
  EXPECT_EQ(mode_of(options_.folder / "catalog.db"), 0600U);
  EXPECT_EQ(mode_of(options_.folder / "agents.key"), 0600U);
  EXPECT_EQ(mode_of(options_.folder / "code"), 0700U);
  EXPECT_THAT(guard_folder(options_), testing::IsEmpty());
  start();
}

// The proof is a job, which runs as another user where the service is root.
TEST_F(FolderRightsTest, a_job_cannot_read_or_replace_what_the_service_keeps_in_a_folder_that_was_there_before) {
  if (::geteuid() != 0) {
    GTEST_LOG_(INFO) << "jobs run as the service's user here: there is nobody to keep out";
    return;
  }
  open_everything();
  start();
  service_->scale_cluster(kCluster, spec::ManualScale{1, spec::NodeDeallocationOption::kTerminate});
  const std::string folder = options_.folder.string();
  submit("thief", job_of(1, fmt::format("for each in catalog.db catalog.db-wal agents.key; do "
                                        "if head -c 1 {0}/$each || mv {0}/$each {0}/mine; then echo took $each; fi; "
                                        "done; ls {0}/code && echo took code; true",
                                        folder)));
  EXPECT_EQ(ended("thief").execution_state, ExecutionState::kSucceeded) << events_of("thief");
  EXPECT_THAT(log_of("thief"), Not(HasSubstr("took")));
  EXPECT_THAT(log_of("thief", "stderr.txt"), HasSubstr("catalog.db"));
}

// Whoever can write to a folder can put another catalog there, whatever the catalog's own mode is.
TEST_F(FolderRightsTest, a_folder_that_others_can_change_is_refused_and_left_as_it_is) {
  service_.reset();
  ::chmod(options_.folder.c_str(), 01777);
  const std::string refusal = refusal_of(options_);
  EXPECT_THAT(refusal,
              HasSubstr(fmt::format("folder {} can be changed by other users (mode 1777)", options_.folder.string())));
  EXPECT_THAT(refusal, HasSubstr(fmt::format("`chmod go-w {}`", options_.folder.string())));
  EXPECT_THROW(start(), Error);
  EXPECT_EQ(mode_of(options_.folder), 01777U);
  ::chmod(options_.folder.c_str(), 0755);
  start();
}

TEST_F(FolderRightsTest, a_folder_of_another_user_is_refused_by_that_users_name) {
  if (::geteuid() != 0) {
    GTEST_LOG_(INFO) << "only root can give a folder away";
    return;
  }
  service_.reset();
  const node::JobUser nobody = node::find_job_user("nobody");
  ASSERT_EQ(::chown(options_.folder.c_str(), nobody.id.user, nobody.id.group), 0);
  EXPECT_THAT(refusal_of(options_), HasSubstr("belongs to user 'nobody'"));
  ASSERT_EQ(::chown(options_.folder.c_str(), 0, 0), 0);
  start();
}

// Otherwise each job fails by itself, and only its own log says why.
TEST_F(FolderRightsTest, a_folder_that_the_jobs_user_cannot_enter_is_named_at_the_start) {
  if (::geteuid() != 0) {
    GTEST_LOG_(INFO) << "jobs run as the service's user here";
    return;
  }
  service_.reset();
  ::chmod((options_.folder / "code").c_str(), 0700);
  ::chmod(options_.folder.c_str(), 0700);
  const std::vector<std::string> sentences = guard_folder(options_);
  ASSERT_EQ(sentences.size(), 1U);
  EXPECT_THAT(sentences[0],
              HasSubstr(fmt::format("user 'nobody' cannot enter the folder {}", options_.folder.string())));
  EXPECT_THAT(sentences[0], HasSubstr("chmod o+x"));
  ::chmod(options_.folder.c_str(), 0755);
  start();
}

}  // namespace
}  // namespace gyre::jobs::service
