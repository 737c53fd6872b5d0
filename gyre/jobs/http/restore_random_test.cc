// Random histories of a service whose catalog is replaced by backups: jobs are submitted, begin and end, the service
// and node programs are killed, and older catalogs come back over the old folder or into new ones. A model of the table
// in docs/guide/backups.md, which knows nothing of the service but what its clients saw, says how often each job may
// begin. No job that has ended begins again where its folder knows that, none runs twice at the same time, none is
// lost. Other histories each day; `./dev test --long` tries 40.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "gyre/base/effort_test_support.h"
#include "gyre/base/random.h"
#include "gyre/jobs/http/service_process_test_support.h"
#include "gyre/jobs/service/backup.h"
#include "gyre/net/http/error.h"

namespace gyre::jobs::http {
namespace {

constexpr int kHistories = 2;
constexpr int kHistoriesOfALongRun = 40;
constexpr int kSteps = 30;
constexpr int kNodes = 3;
constexpr std::size_t kMostUnfinished = 5;
constexpr int kMostRestores = 12;  // 19 losses are forgiven.

/// What clients know of a job.
struct Known {
  bool ended = false;
  bool is_remembered = true;  ///< Its folder knows of its end, and of what runs of it.
  int most_starts = 1;        ///< How often it may have begun by now.
};

struct Backup {
  fs::path file;
  std::set<std::string> jobs{};       ///< All that had been submitted.
  std::set<std::string> ended{};      ///< Those that had ended for certain.
  std::set<std::string> uncertain{};  ///< Those that ended while it was made.
};

/// The table, as far as it says what begins again: `jobs` becomes what is there after the restore, `gone` the others.
void restore_in_model(std::map<std::string, Known>& jobs, std::map<std::string, Known>& gone, const Backup& backup,
                      bool into_old_folder) {
  for (auto& [name, known] : std::exchange(jobs, {})) {
    if (!backup.jobs.contains(name)) {
      gone[name] = known;
      continue;
    }
    const bool goes_on = into_old_folder && known.is_remembered;
    if (backup.ended.contains(name)) {
      known.is_remembered = goes_on;
    } else if (backup.uncertain.contains(name)) {
      known = {.ended = known.ended && goes_on, .is_remembered = goes_on, .most_starts = known.most_starts + 1};
    } else if (!goes_on) {
      known = {.ended = false, .is_remembered = true, .most_starts = known.most_starts + 1};
    }
    jobs[name] = known;
  }
}

class RestoreHistories : public ServiceProcessTest {
 protected:
  RestoreHistories() : ServiceProcessTest(kNodes) {
    options_.lease = std::chrono::seconds(60);  // Nobody is to lose it because the machine is busy.
    start_process();
  }
  ~RestoreHistories() override {
    process_.reset();
    for (const fs::path& folder : left_folders_) end_nodes(folder);
  }

  static int exit_code_of(const std::string& name) { return name.back() == '7' ? 7 : 0; }

  void submit() {
    const int number = submitted_++;
    const std::string name = fmt::format("job-{}-{}", number, random_.below(3) == 0 ? 7 : 0);
    const std::string line = fmt::format(
        "cd $AZ_BATCHAI_MOUNT_ROOT/share; exec 9>> lock-{0}; flock -n 9 || echo {0} >> twice; echo $GYRE_JOB_ATTEMPT "
        ">> "
        "ran-{0}; while [ ! -e go-{0} ]; do sleep 0.02; done; echo $GYRE_JOB_ATTEMPT >> done-{0}; exit {1}",
        name, exit_code_of(name));
    ask(Method::kPut, path_of(name),
        fmt::format(R"({{"properties": {{"cluster": {{"id": "c"}}, "nodeCount": {},
        "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/share", "customToolkitSettings": {{"commandLine": "{}"}}}}}})",
                    random_.below(4) == 0 ? 2 : 1, line));
    jobs_[name] = {};
  }
  int lines_in(const std::string& file) const {
    const std::string text = content_of(share_ / file);
    return static_cast<int>(std::ranges::count(text, '\n'));
  }
  std::string state_of(const std::string& name) const {
    return ask(Method::kGet, path_of(name)).at("properties").at("executionState");
  }
  bool is_there(const std::string& name) const {
    try {
      state_of(name);
      return true;
    } catch (const net::http::HttpError& error) {
      if (error.status() != 404) throw;
      return false;
    }
  }
  void look() {
    for (auto& [name, known] : jobs_) {
      const std::string state = state_of(name);
      const bool has_ended = state == "succeeded" || state == "failed";
      known.ended = known.ended || has_ended;  // One that begins again shows up in how often it began.
    }
  }
  std::vector<std::string> unfinished() const {
    std::vector<std::string> names;
    for (const auto& [name, known] : jobs_) {
      if (!known.ended) names.push_back(name);
    }
    return names;
  }
  void release(const std::string& name) const { std::ofstream(share_ / ("go-" + name)) << "go"; }

  void back_up() {
    look();
    Backup made{.file = folder_.path() / fmt::format("backup-{}.db", backups_made_++)};
    for (const auto& [name, known] : jobs_) {
      made.jobs.insert(name);
      if (known.ended) made.ended.insert(name);
    }
    service::back_up(options_.folder, made.file);
    look();
    for (const auto& [name, known] : jobs_) {
      if (known.ended && !made.ended.contains(name)) made.uncertain.insert(name);
    }
    backups_.push_back(std::move(made));
  }
  void kill_program() {
    std::vector<fs::path> nodes;
    std::error_code ignored;
    for (const auto& node : fs::directory_iterator(options_.folder / "nodes", ignored)) nodes.push_back(node.path());
    if (nodes.empty()) return;
    if (const int pid = program_of(nodes[random_.below(nodes.size())]); pid > 1) ::kill(pid, SIGKILL);
  }

  std::string restore() {
    if (backups_.empty() || restores_ == kMostRestores) return "nothing";
    ++restores_;
    // Later ones are of a history that will not have been.
    backups_.resize(1 + random_.below(backups_.size()));
    const Backup& backup = backups_.back();
    const auto where = random_.below(4);  // Twice as often the old folder.
    if (random_.below(3) == 0) kill_program();
    look();
    process_->kill();
    const fs::path old = options_.folder;
    if (where == 2) options_.folder = folder_.path() / fmt::format("state-{}", restores_);
    if (where == 3) {
      fs::rename(old, folder_.path() / fmt::format("moved-{}", restores_));
      left_folders_.push_back(folder_.path() / fmt::format("moved-{}", restores_));
    }
    if (where == 2) left_folders_.push_back(old);
    const bool into_old_folder = where < 2;
    restore_in_model(jobs_, gone_, backup, into_old_folder);
    fs::create_directories(options_.folder);
    for (const char* file : {"catalog.db", "catalog.db-wal", "catalog.db-shm"}) fs::remove(options_.folder / file);
    fs::copy_file(backup.file, options_.folder / "catalog.db");
    for (const auto& [name, known] : gone_) release(name);  // Nobody would wait for them.
    start_process();
    if (random_.below(3) == 0) {  // Perhaps in the middle.
      process_->kill();
      process_->start();
    }
    return fmt::format("{} put back {}", backup.file.filename().string(),
                       into_old_folder ? "over the old folder"
                       : where == 2    ? "into a new folder"
                                       : "at the same path");
  }

  std::string step() {
    const std::vector<std::string> open = unfinished();
    const auto what = random_.below(12);
    if (what < 3 && open.size() < kMostUnfinished) {
      submit();
      return "a job submitted";
    }
    if (what < 6 && !open.empty()) {
      const std::string& name = open[random_.below(open.size())];
      release(name);
      if (random_.below(2) == 0) return name + " released";
      for (const std::string& each : open) release(each);  // It may wait for the nodes of others.
      EXPECT_TRUE(wait_until([&] { return look(), jobs_[name].ended; })) << name << " does not end";
      return "all released";
    }
    if (what < 8) {
      back_up();
      return "a backup";
    }
    if (what == 8) {
      process_->kill();
      process_->start();
      return "the service killed";
    }
    if (what == 9) {
      kill_program();
      return "an agent killed";
    }
    return restore();
  }

  /// Of all that are there: each has ended as its own exit code says, having begun as often as the model allows.
  void check_all() {
    for (const std::string& name : unfinished()) release(name);
    for (const auto& [name, known] : jobs_) {
      SCOPED_TRACE(name);
      EXPECT_TRUE(wait_until([&, &job = name] {
        const std::string state = state_of(job);
        return state == "succeeded" || state == "failed";
      })) << "is lost";
      const Json info = ask(Method::kGet, path_of(name)).at("properties").at("executionInfo");
      EXPECT_EQ(info.at("exitCode"), exit_code_of(name)) << info.dump();
      EXPECT_GE(lines_in("done-" + name), 1);
      EXPECT_LE(lines_in("ran-" + name), known.most_starts) << content_of(share_ / ("ran-" + name));
    }
    for (const auto& [name, known] : gone_) {
      EXPECT_FALSE(is_there(name)) << name;
      EXPECT_LE(lines_in("ran-" + name), known.most_starts) << name;
    }
    EXPECT_EQ(content_of(share_ / "twice"), "") << "ran twice at the same time";
  }

  Random random_{0};
  std::map<std::string, Known> jobs_;
  std::map<std::string, Known> gone_;  // Submitted after the backup that was restored.
  std::vector<Backup> backups_;
  std::vector<fs::path> left_folders_;
  int submitted_ = 0;
  int backups_made_ = 0;
  int restores_ = 0;
};

class RestoreHistory : public RestoreHistories, public testing::WithParamInterface<int> {};

int histories() { return is_long_test() ? kHistoriesOfALongRun : kHistories; }
INSTANTIATE_TEST_SUITE_P(Restore, RestoreHistory, testing::Range(0, histories()));

TEST_P(RestoreHistory, loses_no_job_and_begins_none_that_need_not) {
  const std::uint64_t seed = first_case_of_day() + static_cast<std::uint64_t>(GetParam());
  SCOPED_TRACE("seed " + std::to_string(seed));
  random_ = Random(seed);
  std::string history;
  for (int count = 0; count < kSteps && !HasFailure(); ++count) history += step() + "\n";
  SCOPED_TRACE(history);
  check_all();
  std::printf("%zu jobs, %zu backups, %d restores\n", jobs_.size() + gone_.size(), backups_.size(), restores_);
}

}  // namespace
}  // namespace gyre::jobs::http
