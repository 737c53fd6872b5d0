// kill -9 at any instruction loses nothing that was confirmed and leaves no half of a change: a child that works on a
// catalog is killed at random moments, each with its seed; more of them with `./dev test --long`.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <sstream>
#include <thread>

#include "gyre/base/effort_test_support.h"
#include "gyre/base/file.h"
#include "gyre/base/random.h"
#include "gyre/jobs/catalog/catalog_test_support.h"

namespace gyre::jobs::catalog {
namespace {

constexpr int kKills = 40;
constexpr int kKillsOfALongRun = 600;
/// Every fourth one may die while it opens the catalog; the others live that long after their first change.
constexpr std::uint64_t kLongestLifeUs = 40'000;

/// Does random things that a service does, and says after each one what the catalog must have from now on.
class Worker {
 public:
  Worker(const std::filesystem::path& file, std::uint64_t seed, int report)
      : random_(seed), report_(report), catalog_(Catalog::open(file)) {}

  [[noreturn]] void work() {
    for (;;) {
      step();
      const std::string line = std::to_string(catalog_.events().latest()) + "\n";
      if (::write(report_, line.data(), line.size()) < 0) ::_exit(1);
    }
  }

 private:
  void step() {
    const std::vector<Job> jobs = catalog_.jobs().unfinished();
    if (jobs.size() < 4) {
      submit();
      return;
    }
    for (const Node& node : catalog_.nodes().list()) {
      if (node.state == NodeState::kPreparing) catalog_.nodes().change(node.id, NodeState::kIdle, kCause);
    }
    const Job& job = jobs[random_.below(jobs.size())];
    const std::vector<Attempt> attempts = catalog_.attempts().list(job.id);
    if (attempts.empty() || attempts.back().state == AttemptState::kEnded) {
      start(job);
    } else {
      go_on(job, attempts.back());
    }
  }

  void submit() {
    const auto workspace = catalog_.workspaces().find("w");
    const auto experiment = catalog_.experiments().find(workspace->id, "e");
    const auto cluster = catalog_.clusters().find(workspace->id, "c");
    catalog_.jobs().create({.experiment = experiment->id,
                            .cluster = cluster->id,
                            .name = "j" + std::to_string(random_.next_u64()),
                            .spec = std::string(random_.below(3000), 's'),
                            .secrets = {{"NAME", "value"}}});
  }

  void start(const Job& job) {
    std::vector<Id> idle;
    for (const Node& node : catalog_.nodes().list()) {
      if (node.state == NodeState::kIdle && idle.size() < 2) idle.push_back(node.id);
    }
    if (idle.size() == 2) catalog_.attempts().plan(job.id, job.attempts + 1, idle, kCause);
    if (random_.below(8) == 0) catalog_.jobs().terminate(job.id, kCause);
  }

  void go_on(const Job& job, const Attempt& attempt) {
    switch (random_.below(4)) {
      case 0: catalog_.attempts().plan_end(attempt.id, EndIntent::kRequeue, kCause); break;
      case 1: catalog_.jobs().terminate(job.id, kCause); break;
      case 2: catalog_.attempts().confirm_start(attempt.id, kCause); break;
      default:
        catalog_.attempts().confirm_end(attempt.id, attempt.end_intent == EndIntent::kRequeue ? requeued() : failed(1));
    }
  }

  Random random_;
  int report_;
  Catalog catalog_;
};

/// Lets a worker live that long and returns the last number that it reported; 0 for none.
Id last_report_of_a_killed_worker(const std::filesystem::path& file, std::uint64_t seed) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      Worker(file, seed, ends[1]).work();
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "worker: %s\n", failure.what());
      ::_exit(1);
    }
  }
  ::close(ends[1]);
  std::string said;
  char buffer[4096];
  const auto read_more = [&] {
    const ssize_t size = ::read(ends[0], buffer, sizeof buffer);
    if (size > 0) said.append(buffer, static_cast<std::size_t>(size));
    return size > 0;
  };
  if (seed % 4 != 0) read_more();
  // The length of a life is what is tried here; nothing waits for it.
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::microseconds(Random(seed, 1).below(kLongestLifeUs)));
    ::kill(child, SIGKILL);
  });
  while (read_more()) {
  }
  killer.join();
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the worker ended by itself";
  std::istringstream lines(said);
  Id last = 0;
  for (Id number = 0; lines >> number;) last = number;
  return last;
}

/// The events of each thing are a chain of legal changes, and its state is where the chain ends.
std::map<std::string, std::string> states_by_events(Catalog& catalog) {
  std::map<std::string, std::string> states;
  Id expected = 1;
  for (PageRequest request{.limit = kLongestPage};;) {
    const auto page = catalog.events().list({}, request);
    for (const Event& event : page.items) {
      EXPECT_EQ(event.sequence, expected++) << "an event is missing";
      const std::string who =
          event.subject + " " + event.name + (event.subject == "attempt" ? "-" + std::to_string(*event.attempt) : "");
      EXPECT_EQ(states[who], event.from) << who << " at event " << event.sequence;
      states[who] = event.to;
    }
    if (!page.next) return states;
    request.after = *page.next;
  }
}

void check_job(Catalog& catalog, const Job& job, std::map<std::string, std::string>& states) {
  EXPECT_EQ(states["job " + job.name], name(job.execution_state));
  const std::vector<Attempt> attempts = catalog.attempts().list(job.id);
  EXPECT_EQ(static_cast<int>(attempts.size()), job.attempts);
  int unended = 0;
  for (const Attempt& attempt : attempts) {
    EXPECT_EQ(states["attempt " + job.name + "-" + std::to_string(attempt.number)], name(attempt.state));
    EXPECT_EQ(attempt.nodes.size(), 2U);
    if (attempt.state == AttemptState::kEnded) continue;
    ++unended;
    EXPECT_EQ(catalog.attempts().secrets(attempt.id).size(), 1U);
    for (const AttemptNode& node : attempt.nodes) EXPECT_EQ(catalog.nodes().get(node.id).attempt, attempt.id);
    if (attempt.state == AttemptState::kStarted) {
      EXPECT_EQ(job.execution_state, ExecutionState::kRunning);
    }
  }
  EXPECT_LE(unended, 1);
  if (is_finished(job.execution_state)) {
    EXPECT_EQ(unended, 0);
    EXPECT_TRUE(job.end.has_value());
  }
  if (job.execution_state == ExecutionState::kRunning || job.execution_state == ExecutionState::kTerminating) {
    EXPECT_EQ(unended, 1);
  }
}

void check_everything(Catalog& catalog) {
  std::map<std::string, std::string> states = states_by_events(catalog);
  for (PageRequest request{.limit = kLongestPage};;) {
    const auto page = catalog.jobs().list({}, request);
    for (const Job& job : page.items) check_job(catalog, job, states);
    if (!page.next) break;
    request.after = *page.next;
  }
  for (const Node& node : catalog.nodes().list()) {
    EXPECT_EQ(states["node " + node.name], name(node.state));
    EXPECT_EQ(node.attempt.has_value(), node.state == NodeState::kRunning) << node.name;
  }
}

TEST(KillTest, nothing_confirmed_is_lost_and_nothing_is_half_done) {
  const TemporaryFolder folder;
  {
    Catalog catalog = Catalog::open(folder.file());
    const Scene scene(catalog, 6);
  }
  const int kills = is_long_test() ? kKillsOfALongRun : kKills;
  Id changes = 0;
  for (int kill = 0; kill < kills && !HasFailure(); ++kill) {
    const std::uint64_t seed = first_case_of_day() + static_cast<std::uint64_t>(kill);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", of kill " + std::to_string(kill + 1));
    const Id confirmed = last_report_of_a_killed_worker(folder.file(), seed);
    Catalog catalog = Catalog::open(folder.file());
    EXPECT_GE(catalog.events().latest(), confirmed) << "a confirmed change is lost";
    check_everything(catalog);
    changes = catalog.events().latest();
  }
  EXPECT_GT(changes, 2 * kills) << "the workers did nothing";
}

}  // namespace
}  // namespace gyre::jobs::catalog
