// A backup is older than what nodes do. What a restored server starts must not run beside what they still run, what has
// succeeded since must not fail, and what cannot be run again must say why. The rows of the table in
// docs/guide/backups.md.
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "gyre/jobs/node/strays.h"
#include "gyre/jobs/service/backup.h"
#include "gyre/jobs/service/service_test_support.h"

namespace gyre::jobs::service {
namespace {

enum class To {
  kOldFolder,
  kNewFolder,      ///< The old one stays where it is.
  kEmptiedFolder,  ///< At the same path; the old one was moved away.
};

class RestoreTest : public JobServiceTest {
 protected:
  RestoreTest() { make_cluster(2); }
  ~RestoreTest() override {
    service_.reset();
    for (const fs::path& folder : folders_) {
      if (fs::exists(folder / "nodes")) end_nodes(folder);
    }
  }

  /// Runs until `release()`; a lock shows two attempts at the same time.
  static spec::JobSpec waiting_job(const std::string& name, int exit_code = 0) {
    return job_of(
        1, fmt::format("cd $AZ_BATCHAI_MOUNT_ROOT/share; exec 9>> lock-{0}; flock -n 9 || touch twice; echo "
                       "$GYRE_JOB_ATTEMPT >> ran-{0}; echo said; while [ ! -e go-{0} ]; do sleep 0.02; done; exit {1}",
                       name, exit_code));
  }
  void release(const std::string& name) const { std::ofstream(share_ / ("go-" + name)) << "go"; }
  /// Which attempts have run, by their numbers.
  std::vector<std::string> runs(const std::string& name) const {
    std::vector<std::string> found;
    std::istringstream lines(content_of(share_ / ("ran-" + name)));
    for (std::string line; std::getline(lines, line);) found.push_back(line.substr(line.rfind('-') + 1));
    return found;
  }
  bool has_begun(const std::string& name, std::size_t times = 1) const {
    return wait_until([&] { return runs(name).size() >= times; });
  }
  void expect_never_twice() const { EXPECT_FALSE(fs::exists(share_ / "twice")); }

  catalog::BackedUpCode back_up() {
    fs::remove(backup_);
    return service::back_up(options_.folder, backup_);
  }
  void put_back(To to) {
    const fs::path old = options_.folder;
    if (to == To::kNewFolder) options_.folder = folder_.path() / "new";
    if (to == To::kEmptiedFolder) fs::rename(old, folder_.path() / "moved");
    folders_ = {old, folder_.path() / "moved"};
    fs::create_directories(options_.folder);
    for (const char* file : {"catalog.db", "catalog.db-wal", "catalog.db-shm"}) fs::remove(options_.folder / file);
    fs::copy_file(backup_, options_.folder / "catalog.db");
  }
  void restore(To to) {
    service_.reset();
    put_back(to);
    start();
  }
  bool becomes(const std::string& name, ExecutionState state) {
    return wait_until([&] { return state_of(name) == state; });
  }
  /// Of the cluster.
  std::string problem() const {
    const auto errors = service_->cluster(kCluster).errors;
    return errors.empty() ? "" : errors.front().message;
  }
  /// In the copy.
  void execute(const std::string& sql) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(backup_.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
  }

  fs::path backup_ = folder_.path() / "backup.db";
  std::vector<fs::path> folders_;
};

TEST_F(RestoreTest, over_the_old_folder_a_job_that_still_runs_goes_on) {
  submit("job", waiting_job("job"));
  ASSERT_TRUE(has_begun("job"));
  back_up();
  restore(To::kOldFolder);
  release("job");
  EXPECT_EQ(ended("job").execution_state, ExecutionState::kSucceeded) << events_of("job");
  EXPECT_THAT(runs("job"), testing::ElementsAre("1"));
}

TEST_F(RestoreTest, over_the_old_folder_what_has_ended_since_the_backup_is_not_run_again) {
  submit("succeeds", waiting_job("succeeds"));
  submit("fails", waiting_job("fails", 7));
  submit("queued", waiting_job("queued"));  // There are two nodes.
  ASSERT_TRUE(has_begun("succeeds") && has_begun("fails"));
  back_up();
  for (const char* name : {"succeeds", "fails", "queued"}) release(name);
  for (const char* name : {"succeeds", "fails", "queued"}) ended(name);
  restore(To::kOldFolder);
  EXPECT_EQ(ended("succeeds").execution_state, ExecutionState::kSucceeded);
  EXPECT_EQ(ended("fails").execution_info.exit_code, 7);
  EXPECT_EQ(ended("queued").execution_state, ExecutionState::kSucceeded) << events_of("queued");
  for (const char* name : {"succeeds", "fails", "queued"}) EXPECT_THAT(runs(name), testing::ElementsAre("1"));
  EXPECT_THAT(log_of("queued"), HasSubstr("said"));  // Also of an attempt that the backup did not know.
}

TEST_F(RestoreTest, over_the_old_folder_what_began_since_the_backup_goes_on) {
  submit("first", waiting_job("first"));
  submit("second", waiting_job("second"));
  submit("queued", waiting_job("queued"));
  ASSERT_TRUE(has_begun("first") && has_begun("second"));
  back_up();
  release("first");
  ended("first");
  ASSERT_TRUE(has_begun("queued"));
  restore(To::kOldFolder);
  EXPECT_TRUE(becomes("queued", ExecutionState::kRunning));
  release("queued");
  release("second");
  EXPECT_EQ(ended("queued").execution_state, ExecutionState::kSucceeded) << events_of("queued");
  EXPECT_EQ(ended("second").execution_state, ExecutionState::kSucceeded);
  for (const char* name : {"first", "second", "queued"}) EXPECT_THAT(runs(name), testing::ElementsAre("1"));
}

// The service was killed in the moment in which a node wrote down the end.
TEST_F(RestoreTest, over_the_old_folder_what_has_ended_and_no_service_has_heard_of_is_not_run_again) {
  for (const char* name : {"first", "second"}) submit(name, waiting_job(name));
  submit("queued", waiting_job("queued", 7));
  ASSERT_TRUE(has_begun("first") && has_begun("second"));
  back_up();
  release("second");
  ended("second");
  ASSERT_TRUE(has_begun("queued"));  // Not on the node that comes first.
  release("first");
  ended("first");
  service_.reset();
  release("queued");
  EXPECT_TRUE(wait_until([&] {
    return std::ranges::any_of(fs::directory_iterator(options_.folder / "nodes"),
                               [](const auto& node) { return !node::kept_records(node.path()).empty(); });
  }));
  restore(To::kOldFolder);
  EXPECT_EQ(ended("queued").execution_info.exit_code, 7) << events_of("queued");
  EXPECT_THAT(runs("queued"), testing::ElementsAre("1")) << events_of("queued");
}

// It failed with "node busy", exit code 255, and its retries were used up at once.
TEST_F(RestoreTest, over_the_old_folder_a_job_waits_for_a_node_that_is_busy_with_what_nobody_knows_any_more) {
  submit("first", waiting_job("first"));
  submit("second", waiting_job("second"));
  ASSERT_TRUE(has_begun("first") && has_begun("second"));
  back_up();
  for (const char* name : {"first", "second"}) release(name);
  for (const char* name : {"first", "second"}) ended(name);
  for (const char* name : {"later", "latest"}) submit(name, waiting_job(name));
  ASSERT_TRUE(has_begun("later") && has_begun("latest"));
  fs::remove(options_.folder / "ended.log");  // As if it had been too long ago.
  restore(To::kOldFolder);
  for (const char* name : {"first", "second"}) {
    EXPECT_EQ(ended(name).execution_state, ExecutionState::kSucceeded) << events_of(name);
    EXPECT_THAT(runs(name), testing::ElementsAre("1", "2"));
  }
  EXPECT_THROW(state_of("later"), resources::ServiceError);
  expect_never_twice();
}

class EmptyFolder : public RestoreTest, public testing::WithParamInterface<To> {};
INSTANTIATE_TEST_SUITE_P(Restore, EmptyFolder, testing::Values(To::kNewFolder, To::kEmptiedFolder));

TEST_P(EmptyFolder, what_still_runs_has_ended_before_it_begins_again) {
  submit("running", waiting_job("running"));
  submit("other", waiting_job("other"));
  submit("queued", waiting_job("queued"));
  ASSERT_TRUE(has_begun("running") && has_begun("other"));
  back_up();
  release("other");
  ended("other");
  ASSERT_TRUE(has_begun("queued"));  // In an attempt that the backup does not know.
  restore(GetParam());
  // There are two nodes; "other", which needs one once more, ends at once.
  EXPECT_TRUE(has_begun("running", 2)) << events_of("running");
  EXPECT_TRUE(has_begun("queued", 2));
  for (const char* name : {"running", "queued"}) release(name);
  for (const char* name : {"running", "other", "queued"}) {
    EXPECT_EQ(ended(name).execution_state, ExecutionState::kSucceeded) << events_of(name);
  }
  EXPECT_THAT(runs("running"), testing::ElementsAre("1", "2"));
  EXPECT_THAT(runs("queued"), testing::ElementsAre("1", "1"));
  expect_never_twice();
}

// Nobody counts their lease.
TEST_P(EmptyFolder, processes_whose_node_program_was_killed_are_ended_too) {
  submit("job", waiting_job("job"));
  ASSERT_TRUE(has_begun("job"));
  back_up();
  service_.reset();
  for (const auto& node : fs::directory_iterator(options_.folder / "nodes")) ::kill(program_of(node.path()), SIGKILL);
  restore(GetParam());
  EXPECT_TRUE(has_begun("job", 2)) << events_of("job");
  release("job");
  EXPECT_EQ(ended("job").execution_state, ExecutionState::kSucceeded);
  expect_never_twice();
}

// Somebody tries a backup beside the server that it is of.
TEST_F(RestoreTest, what_a_server_that_is_alive_runs_is_left_alone_and_waited_for) {
  submit("job", waiting_job("job"));
  ASSERT_TRUE(has_begun("job"));
  back_up();
  const auto first = std::move(service_);
  put_back(To::kNewFolder);
  start();
  EXPECT_TRUE(wait_until([&] { return problem().find("end that server") != std::string::npos; }));
  EXPECT_THAT(runs("job"), testing::ElementsAre("1"));
  release("job");
  EXPECT_TRUE(wait_until([&] { return first->job(named("job")).execution_state == ExecutionState::kSucceeded; }));
  EXPECT_EQ(ended("job").execution_state, ExecutionState::kSucceeded);  // In a second attempt: this server's first.
  expect_never_twice();
}

TEST_F(RestoreTest, of_another_machine_nothing_begins_before_the_lease_there_is_over) {
  submit("job", waiting_job("job"));
  ASSERT_TRUE(has_begun("job"));
  back_up();
  execute("UPDATE service SET backup_view = 'another'");
  service_.reset();
  const auto began = SteadyClock::now();
  restore(To::kNewFolder);
  EXPECT_THAT(problem(), HasSubstr("another machine"));
  EXPECT_TRUE(has_begun("job", 2));
  EXPECT_GE(SteadyClock::now() - began, options_.lease);
  release("job");
  EXPECT_EQ(ended("job").execution_state, ExecutionState::kSucceeded);
  expect_never_twice();
}

// It would be queued again beside what still runs there: it may have been retried since.
TEST_F(RestoreTest, of_another_machine_jobs_that_have_failed_wait_too) {
  submit("job", waiting_job("job", 7));
  release("job");
  ended("job");
  back_up();
  execute("UPDATE service SET backup_view = 'another'");
  restore(To::kNewFolder);
  EXPECT_THAT(problem(), HasSubstr("another machine"));
}

// The nodes there have the lease of the server that is gone, not this one's.
TEST_F(RestoreTest, a_restored_server_that_is_restarted_still_waits_for_the_lease_of_the_backup) {
  submit("job", waiting_job("job"));
  ASSERT_TRUE(has_begun("job"));
  back_up();
  execute("UPDATE service SET backup_view = 'another', lease_ms = 600000");
  restore(To::kNewFolder);
  restart();
  EXPECT_THAT(problem(), HasSubstr("601 s"));
}

// A job can call itself a node program of any node, with any attempt.
TEST_F(RestoreTest, what_a_process_of_another_account_says_of_its_node_is_not_believed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  submit("job", waiting_job("job"));
  ASSERT_TRUE(has_begun("job"));
  back_up();
  const fs::path liar = folder_.path() / "liar";
  fs::create_directories(liar / "n/agent");
  std::ofstream(liar / "agent") << "sleep 1000\n";
  for (const auto& each : fs::directory_iterator(options_.folder / "nodes")) {
    const fs::path current = node::NodeFolders(each.path()).current();
    if (fs::exists(current)) fs::copy_file(current, liar / "n/agent/current.json");
  }
  constexpr uid_t kNobody = 65'534;
  const std::string root = (liar / "n").string();
  ASSERT_EQ(::chown(root.c_str(), kNobody, kNobody), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setpgid(0, 0) != 0 || ::chdir(liar.c_str()) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
    ::execl("/bin/sh", "sh", "agent", "--root", root.c_str(), static_cast<char*>(nullptr));
    ::_exit(1);
  }
  EXPECT_TRUE(wait_until([&] { return content_of(fmt::format("/proc/{}/cmdline", child)).starts_with("sh"); }));
  restore(To::kOldFolder);
  EXPECT_TRUE(becomes("job", ExecutionState::kRunning));
  EXPECT_EQ(::kill(-child, SIGKILL), 0);  // With its sleep.
  int status = 0;
  ::waitpid(child, &status, 0);
  release("job");
  EXPECT_EQ(ended("job").execution_state, ExecutionState::kSucceeded) << events_of("job");
  EXPECT_THAT(runs("job"), testing::ElementsAre("1"));
}

TEST_F(RestoreTest, a_restored_server_restores_once) {
  submit("job", waiting_job("job"));
  ASSERT_TRUE(has_begun("job"));
  back_up();
  restore(To::kOldFolder);
  EXPECT_TRUE(wait_until([&] { return !catalog::Catalog::open_to_read(options_.folder / "catalog.db").restored(); }));
  restart();
  release("job");
  EXPECT_EQ(ended("job").execution_state, ExecutionState::kSucceeded);
  EXPECT_THAT(runs("job"), testing::ElementsAre("1"));
}

class CodeInBackups : public RestoreTest {
 protected:
  std::string submit_with_code(const std::string& name) {
    const std::string code(64, 'c');
    const fs::path file = folder_.path() / "upload";
    std::ofstream(file) << std::string(3'072'000, '\0');  // An archive of nothing, longer than what is copied at once.
    service_->store_code({"ada", false}, "w", code, UniqueFd(::open(file.c_str(), O_RDONLY | O_CLOEXEC)), 3'072'000);
    resources::Submission submission{waiting_job(name), kCluster, code};
    service_->submit(named(name), submission);
    return code;
  }
  fs::path place_of(const std::string& code) const {
    for (const auto& file : fs::recursive_directory_iterator(options_.folder / "code")) {
      if (file.path().filename() == code + ".tar") return file.path();
    }
    return {};
  }
};

TEST_F(CodeInBackups, code_of_jobs_that_have_not_ended_comes_back) {
  for (const char* name : {"first", "second"}) submit(name, waiting_job(name));
  ASSERT_TRUE(has_begun("first") && has_begun("second"));
  const std::string code = submit_with_code("queued");
  const catalog::BackedUpCode saved = back_up();
  EXPECT_EQ(saved.archives, 1);
  EXPECT_EQ(saved.bytes, 3'072'000U);
  const std::string before = content_of(place_of(code));
  restore(To::kNewFolder);
  ASSERT_FALSE(place_of(code).empty());
  EXPECT_EQ(content_of(place_of(code)), before);
}

TEST_F(CodeInBackups, a_job_whose_code_is_nowhere_fails_at_once_and_says_so) {
  for (const char* name : {"first", "second"}) submit(name, waiting_job(name));
  ASSERT_TRUE(has_begun("first") && has_begun("second"));
  const std::string code = submit_with_code("queued");
  fs::remove(place_of(code));
  EXPECT_THAT(back_up().jobs_without, testing::ElementsAre("queued"));
  restore(To::kNewFolder);
  const resources::Job job = service_->job(named("queued"));
  ASSERT_EQ(job.execution_state, ExecutionState::kFailed);
  EXPECT_EQ(job.execution_info.errors.front().code, "CodeNotFound");
  EXPECT_THAT(job.execution_info.errors.front().message, HasSubstr("submit the job again"));
}

}  // namespace
}  // namespace gyre::jobs::service
