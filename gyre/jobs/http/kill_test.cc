// kill -9 of the service, of node programs, of the processes of attempts and of those that hold the ranks, at random
// points, while jobs are submitted and run: no job is lost, none runs twice, none leaves a process behind, and the
// events tell all of it. Other kills each day; `./dev test --long` tries 300.
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "gyre/base/effort_test_support.h"
#include "gyre/base/random.h"
#include "gyre/jobs/http/service_process_test_support.h"

namespace gyre::jobs::http {
namespace {

constexpr int kKills = 40;
constexpr int kKillsOfALongRun = 300;
constexpr int kNodes = 3;
constexpr std::size_t kMostUnfinished = 6;
constexpr std::uint64_t kLongestPauseMs = 120;  // Between two kills.
constexpr int kRestarts = 3;                    // Of the process of an attempt, before a node gives it up.

std::vector<int> processes_with(const std::string& file, const std::string& text) {
  std::vector<int> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (content_of(entry.path() / file).find(text) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

class KillTest : public ServiceProcessTest {
 protected:
  struct Submitted {
    std::string name;
    int nodes = 1;
    int exit_code = 0;
  };

  KillTest() : ServiceProcessTest(kNodes) { start_process(); }

  void submit_next(Random& random) {
    Submitted job{.name = fmt::format("job-{}", jobs_.size()),
                  .nodes = random.below(3) == 0 ? 2 : 1,
                  .exit_code = static_cast<int>(jobs_.size() % 3)};
    const std::string line =
        fmt::format("echo ran >> $AZ_BATCHAI_MOUNT_ROOT/share/{0}; sleep 0.{1}; echo last; exit {2}", job.name,
                    random.below(3), job.exit_code);
    const std::string file = fmt::format(
        R"({{"properties": {{"cluster": {{"id": "c"}}, "nodeCount": {}, "stdOutErrPathPrefix":
             "$AZ_BATCHAI_MOUNT_ROOT/share", "jobPreparation": {{"commandLine": "sleep 0.05"}},
             "customToolkitSettings": {{"commandLine": "{}"}}}}}})",
        job.nodes, line);
    ask(Method::kPut, path_of(job.name), file);
    jobs_.push_back(job);
  }
  std::size_t unfinished() const {
    std::size_t count = 0;
    for (const Submitted& job : jobs_) {
      if (finished_.contains(job.name)) continue;
      const std::string state = ask(Method::kGet, path_of(job.name)).at("properties").at("executionState");
      if (state == "succeeded" || state == "failed") {
        finished_.insert(job.name);
      } else {
        ++count;
      }
    }
    return count;
  }

  /// What an attempt is called that the node's program has in hand; empty where there is none.
  static std::string attempt_on(const fs::path& node) {
    const Json state = Json::parse(content_of(node::NodeFolders(node).current()), nullptr, false);
    return state.is_object() ? state.value(Json::json_pointer("/order/attempt"), "") : "";
  }

  /// Of attempts on this service's nodes, each with its node.
  std::vector<std::pair<int, fs::path>> attempt_processes() const {
    std::vector<std::pair<int, fs::path>> found;
    const std::string nodes = (options_.folder / "nodes").string() + "/";
    for (const int pid : processes_with("cmdline", std::string("attempt\0--agent-fd", 18))) {
      const std::string text = content_of(fmt::format("/proc/{}/stat", pid));  // "PID (NAME) STATE PARENT …"
      const std::size_t end_of_name = text.rfind(')');
      if (end_of_name == std::string::npos) continue;
      char state = 0;
      int parent = 0;
      std::istringstream(text.substr(end_of_name + 1)) >> state >> parent;
      const std::string program = content_of(fmt::format("/proc/{}/cmdline", parent));
      const std::size_t root = program.find(nodes);
      if (root == std::string::npos) continue;
      const std::size_t name = root + nodes.size();
      found.emplace_back(pid, nodes + program.substr(name, program.find('\0', name) - name));
    }
    return found;
  }

  /// One of: the service, a node program, the process of an attempt, a process of `gyre launch`. Returns which, for a
  /// failure's message.
  std::string kill_something(Random& random) {
    const auto what = random.below(4);
    if (what == 0) {
      process_->kill();
      process_->start();
      return "the service";
    }
    if (what == 1) {
      std::vector<fs::path> nodes;
      std::error_code ignored;
      for (const auto& node : fs::directory_iterator(options_.folder / "nodes", ignored)) nodes.push_back(node.path());
      if (nodes.empty()) return "nothing";
      const fs::path node = nodes[random.below(nodes.size())];
      if (const int pid = program_of(node); pid > 1) ::kill(pid, SIGKILL);
      return "the agent of " + node.filename().string();
    }
    if (what == 2) {
      const auto processes = attempt_processes();
      if (processes.empty()) return "nothing";
      const auto& [pid, node] = processes[random.below(processes.size())];
      const std::string attempt = attempt_on(node);
      ::kill(pid, SIGKILL);
      if (++killed_processes_[attempt] > kRestarts) bereft_.insert(attempt.substr(0, attempt.rfind('-')));
      return fmt::format("the process of attempt {} on {}", attempt, node.filename().string());
    }
    std::vector<std::pair<int, fs::path>> holders;
    const std::string nodes = (options_.folder / "nodes").string() + "/";
    for (const int pid : processes_with("cmdline", nodes)) {
      const std::string line = content_of(fmt::format("/proc/{}/cmdline", pid));
      const std::size_t at = line.find(nodes);
      if (at == std::string::npos || line.find(".sock.json") == std::string::npos) continue;
      const std::size_t name = at + nodes.size();
      holders.emplace_back(pid, nodes + line.substr(name, line.find('/', name) - name));
    }
    if (holders.empty()) return "nothing";
    const auto& [pid, node] = holders[random.below(holders.size())];
    const std::string before = attempt_on(node);
    ::kill(pid, SIGKILL);
    ++killed_launchers_;
    const std::string after = attempt_on(node);
    for (const std::string& attempt : {before, after}) bereft_.insert(attempt.substr(0, attempt.rfind('-')));
    return fmt::format("a gyre launch of {} in attempt {}", node.filename().string(), before);
  }

  void check_events(const std::string& name) const {
    std::map<std::string, std::string> states;
    std::int64_t last = 0;
    for (std::string target = path_of(name) + "/events"; !target.empty();) {
      const Json page = ask(Method::kGet, target);
      for (const Json& event : page.at("value")) {
        EXPECT_GT(event.at("sequence").get<std::int64_t>(), last);
        last = event.at("sequence");
        const bool changes = event.at("from") != event.at("to");
        if (!changes) continue;  // A remark.
        const std::string who = event.at("subject").get<std::string>() +
                                (event.at("subject") == "attempt" ? event.at("attempt").dump() : std::string());
        EXPECT_EQ(Json(states[who]), event.at("from")) << name << ": " << event.dump();
        states[who] = event.at("to");
      }
      target = page.at("nextLink").is_string() ? page.at("nextLink").get<std::string>() : "";
    }
    const Json job = ask(Method::kGet, path_of(name));
    EXPECT_EQ(Json(states["job"]), job.at("properties").at("executionState"));
    for (int attempt = 1; attempt <= job.at("gyre").at("attempts").get<int>(); ++attempt) {
      EXPECT_EQ(states["attempt" + std::to_string(attempt)], "ended") << name;
    }
  }

  /// Those that have finished since the last call.
  void check_finished() {
    for (const Submitted& job : jobs_) {
      if (finished_.contains(job.name) && checked_.insert(job.name).second) check(job);
    }
  }

  void check(const Submitted& job) {
    const Json record = ask(Method::kGet, path_of(job.name));
    const Json& info = record.at("properties").at("executionInfo");
    SCOPED_TRACE(job.name + ": " + info.dump());
    check_events(job.name);
    const std::string ran = content_of(share_ / job.name);
    const int starts = static_cast<int>(std::ranges::count(ran, '\n'));
    const int attempts = record.at("gyre").at("attempts");
    EXPECT_LE(starts, attempts) << "an attempt ran twice";
    // A process of `gyre launch` may be one that is about to become the job's command.
    const bool internal = info.at("exitCode") == 128 + SIGKILL ||
                          (!info.at("errors").empty() && info.at("errors").front().at("code") == "InternalError");
    const std::string uuid = record.at("gyre").at("uuid");
    if (internal) {
      ++failed_;
      EXPECT_TRUE(bereft_.contains(uuid)) << "nothing that it cannot do without was killed";
    } else {
      EXPECT_EQ(info.at("exitCode"), job.exit_code);
      EXPECT_GE(starts, 1);
      const std::string segment = record.at("properties").at("jobOutputDirectoryPathSegment");
      EXPECT_TRUE(content_of(share_ / segment / "stdouterr/stdout.txt").ends_with("last\n"));
    }
    EXPECT_TRUE(wait_until([&] { return processes_with("environ", "GYRE_JOB_ATTEMPT=" + uuid).empty(); }))
        << "a process is left";
  }

  std::vector<Submitted> jobs_;
  mutable std::set<std::string> finished_;
  std::set<std::string> checked_;
  // The jobs, by UUID, of which a `gyre launch` was killed, or the process of an attempt too often.
  std::set<std::string> bereft_;
  std::map<std::string, int> killed_processes_;  // By attempt.
  int killed_launchers_ = 0;
  int failed_ = 0;
};

TEST_F(KillTest, at_random_points_lose_no_job_double_none_and_leave_nothing) {
  const std::uint64_t seed = seed_of_day();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const int kills = is_long_test() ? kKillsOfALongRun : kKills;
  std::string last = "nothing";
  for (int kill = 0; kill <= kills && !HasFailure(); ++kill) {
    SCOPED_TRACE(fmt::format("after kill {}, of {}", kill, last));
    if (kill == kills) {
      EXPECT_TRUE(wait_until([&] { return unfinished() == 0; }));
      check_finished();
      break;
    }
    while (unfinished() < kMostUnfinished) submit_next(random);
    check_finished();
    // The moment of the kill is what is tried here; nothing waits for it.
    std::this_thread::sleep_for(std::chrono::milliseconds(random.below(kLongestPauseMs)));
    last = kill_something(random);
  }
  EXPECT_TRUE(wait_until([&] {
    for (const int pid : processes_with("cmdline", (options_.folder / "nodes").string() + "/")) {
      if (content_of(fmt::format("/proc/{}/cmdline", pid)).find(".sock.json") != std::string::npos) return false;
    }
    return true;
  })) << "a gyre launch is left";
  std::printf("%d kills, %zu jobs, %d launchers killed, %d jobs failed by that\n", kills, jobs_.size(),
              killed_launchers_, failed_);
  process_.reset();
}

}  // namespace
}  // namespace gyre::jobs::http
