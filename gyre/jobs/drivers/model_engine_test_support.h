#pragma once

// An engine on this machine for tests of what stands on engines: it forgets what it is asked, or to answer, takes its
// time, and does things twice, as its seed says.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/process.h"
#include "gyre/base/random.h"
#include "gyre/base/secret_key.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/drivers/engine_options.h"
#include "gyre/jobs/drivers/node_engine.h"
#include "gyre/jobs/node/job_environment.h"

namespace gyre::jobs::drivers {

/// Three hosts, each with an address and a local folder of its own: FOLDER/local in its mount namespace, which is
/// FOLDER/nodes/N outside. It needs root.
class ModelEngine final : public NodeEngine {
 public:
  static constexpr int kHosts = 3;

  ModelEngine(std::filesystem::path folder, EngineOptions options, std::uint64_t seed)
      : folder_(std::move(folder)), options_(std::move(options)), random_(seed) {
    std::filesystem::create_directories(options_.node_folder);
    for (int host = 0; host < kHosts; ++host) std::filesystem::create_directories(own_folder(host));
  }

  std::string title() const override { return "the model"; }
  Capacity capacity() const override { return {.most_nodes = kHosts}; }
  std::vector<Missing> check() override { return missing; }
  std::vector<Artifact> describe(const NodeRequest& request) const override {
    return {{"request", fmt::format("{} nodes for {}\n", request.order.nodes.size(), request.name)}};
  }

  std::string ask(const NodeRequest& request) override {
    const MutexLock lock(mutex_);
    lose_sometimes();
    if (request.order.nodes.size() > kHosts) throw Error(ErrorCode::kInvalidArgument, "there are three hosts");
    std::string id;
    for (std::uint64_t times = 1 + random_.below(2); times > 0; --times) {
      id = std::to_string(jobs_.size() + 1);
      jobs_.push_back({{.id = id, .name = request.name, .service = request.service}, request, random_.below(4)});
    }
    lose_sometimes();
    return id;
  }

  std::vector<Holding> list() override {
    const MutexLock lock(mutex_);
    lose_sometimes();
    std::vector<Holding> holdings;
    for (Job& job : jobs_) holdings.push_back((advance(job), job.holding));
    return holdings;
  }

  void release(const std::string& id) override {
    const MutexLock lock(mutex_);
    lose_sometimes();
    for (Job& job : jobs_) {
      if (job.holding.id == id) end(job, Holding::State::kCanceled, "CANCELLED");
    }
    lose_sometimes();
  }

  /// As when hosts fail.
  void take_away(const std::string& name) {
    const MutexLock lock(mutex_);
    for (Job& job : jobs_) {
      if (job.holding.name == name) end(job, Holding::State::kLost, "NODE_FAIL");
    }
  }
  /// How often an attempt's nodes were given.
  std::size_t times_started(const std::string& name) {
    const MutexLock lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count_if(
        jobs_, [&](const Job& job) { return job.holding.name == name && !job.programs.empty(); }));
  }
  /// Where the local folder of each host lies outside.
  std::filesystem::path own_folder(int host) const { return folder_ / "nodes" / std::to_string(host); }

  std::vector<Missing> missing;

 private:
  using State = Holding::State;

  struct Job {
    Holding holding;
    NodeRequest request;
    std::uint64_t delay = 0;  ///< How often it is looked at before anything happens.
    std::vector<int> hosts = {};
    std::vector<Process> programs = {};
    std::optional<std::pair<State, std::string>> end = std::nullopt;
  };

  /// Before a call has done what it is to do, or afterwards.
  void lose_sometimes() GYRE_REQUIRES(mutex_) {
    if (random_.below(8) == 0) throw Error(ErrorCode::kTimeout, "the model has not answered");
  }

  void end(Job& job, State state, const std::string& word) GYRE_REQUIRES(mutex_) {
    if (job.holding.is_over()) return;
    if (!job.end) job.end = {state, word};
    job.delay = random_.below(4);
  }

  void advance(Job& job) GYRE_REQUIRES(mutex_) {
    if (job.holding.is_over() || (job.delay > 0 && job.delay-- > 0)) return;
    if (job.holding.state == State::kWaits && !job.end) return start(job);
    const auto failed = [](const Process& program) {
      const auto status = program.exit_status();
      return status && !status->success();
    };
    if (!job.end && std::ranges::any_of(job.programs, failed)) job.end = {State::kCanceled, "FAILED"};
    for (const Process& program : job.programs) {
      if (job.end) program.signal(SIGTERM);
    }
    if (!std::ranges::all_of(job.programs, [](const Process& program) { return program.exit_status().has_value(); }))
      return;
    const auto [state, word] = job.end.value_or(std::pair(State::kLost, std::string("COMPLETED")));
    job.holding.state = state;
    job.holding.text = word;
    for (const int host : job.hosts) std::filesystem::remove_all(own_folder(host) / job.holding.name);
  }

  void start(Job& job) GYRE_REQUIRES(mutex_) {
    std::set<int> free;
    for (int host = 0; host < kHosts; ++host) free.insert(host);
    for (const Job& other : jobs_) {
      if (other.holding.state != State::kRuns) continue;
      for (const int host : other.hosts) free.erase(host);
      if (other.holding.name == job.holding.name) free.clear();  // One of a name at a time.
    }
    job.holding.text = "Resources";
    if (free.size() < job.request.order.nodes.size()) return;
    job.hosts.assign(free.begin(), std::next(free.begin(), static_cast<int>(job.request.order.nodes.size())));
    for (std::size_t node = 0; node < job.hosts.size(); ++node) start_program(job, node);
    job.holding.state = State::kRuns;
    job.holding.text = fmt::format("hosts {}", fmt::join(job.hosts, ","));
    job.delay = random_.below(4);
  }

  void start_program(Job& job, std::size_t node) {
    const std::filesystem::path inside = options_.node_folder / job.holding.name;
    const std::filesystem::path outside = own_folder(job.hosts[node]) / job.holding.name;
    std::filesystem::create_directories(outside);
    std::ofstream(outside / "agent.key") << hex_of(job.request.key) << "\n";
    ::chmod((outside / "agent.key").c_str(), 0600);
    SpawnOptions options;
    options.argv = {"unshare",
                    "-m",
                    "sh",
                    "-c",
                    R"(mount --bind "$0" "$1" && shift && exec "$@")",
                    own_folder(job.hosts[node]).string(),
                    options_.node_folder.string()};
    const std::vector<std::string> command = {options_.gyre,
                                              "agent",
                                              "--supervise",
                                              "--service",
                                              net::to_string(job.request.service.place),
                                              "--key-file",
                                              inside / "agent.key",
                                              "--node",
                                              job.request.order.nodes[node].registered_name(),
                                              "--root",
                                              inside,
                                              "--give-up-seconds",
                                              std::to_string(options_.give_up.count()),
                                              "--untold-seconds",
                                              "10",
                                              "--job-user",
                                              options_.job_user,
                                              "--address",
                                              fmt::format("127.0.0.{}", 2 + job.hosts[node])};
    options.argv.insert(options.argv.end(), command.begin(), command.end());
    options.environment = node::as_entries(options_.environment);
    job.programs.push_back(Process::spawn(options));
  }

  const std::filesystem::path folder_;
  const EngineOptions options_;
  Mutex mutex_;
  Random random_ GYRE_GUARDED_BY(mutex_);
  std::list<Job> jobs_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::drivers
