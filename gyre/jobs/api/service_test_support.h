#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/api/errors.h"
#include "gyre/jobs/api/service.h"

// For tests of the HTTP interface: a service that keeps everything in memory and runs nothing. Tests make jobs finish.
namespace gyre::jobs::api {

class MemoryService : public JobService {
 public:
  explicit MemoryService(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // ---- for tests
  void add_user(const std::string& name, bool is_administrator, const std::string& token) {
    const MutexLock lock(mutex_);
    tokens_[token] = {name, is_administrator};
  }
  void set_state(const JobName& name, ExecutionState state) {
    std::vector<std::shared_ptr<std::function<void()>>> watchers;
    {
      const MutexLock lock(mutex_);
      jobs_.at(key(name)).execution_state = state;
      events_.push_back({name, Event{.sequence = static_cast<std::int64_t>(events_.size()) + 1,
                                     .time = 1'000'000,
                                     .subject = "job",
                                     .name = name.job,
                                     .to = state == ExecutionState::kRunning ? "running" : "succeeded"}});
      for (const auto& weak : watchers_) {
        if (auto watcher = weak.lock()) watchers.push_back(std::move(watcher));
      }
    }
    for (const auto& watcher : watchers) (*watcher)();
  }
  /// Everything that was asked for inside a workspace, but for who may use it.
  int calls() const {
    const MutexLock lock(mutex_);
    return calls_;
  }
  std::filesystem::path files_of(const JobName& name) const { return directory_ / name.job / "stdouterr"; }
  Submission last_submission() const {
    const MutexLock lock(mutex_);
    return last_submission_;
  }
  Scale last_scale() const {
    const MutexLock lock(mutex_);
    return last_scale_;
  }

  // ---- users
  std::optional<User> authenticate(std::string_view token) override {
    const MutexLock lock(mutex_);
    const auto found = tokens_.find(std::string(token));
    return found == tokens_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<User> user_with_account(const std::string& account) override {
    const MutexLock lock(mutex_);
    for (const auto& [token, user] : tokens_) {
      if ((user.account.empty() ? user.name : user.account) == account) return user;
    }
    return std::nullopt;
  }
  bool may_use(const User& user, const std::string& workspace) override {
    const MutexLock lock(mutex_);
    const auto found = workspaces_.find(workspace);
    return found != workspaces_.end() && (user.is_administrator || found->second.contains(user.name));
  }
  void check_may_change(const User& user) override {
    if (user.name == "viewer") throw ServiceError(ServiceError::Kind::kForbidden, "NotTrusted", "viewers may look");
  }
  std::vector<User> users() override {
    const MutexLock lock(mutex_);
    std::vector<User> users;
    for (const auto& [token, user] : tokens_) users.push_back(user);
    return users;
  }
  std::string create_user(const User& user) override {
    add_user(user.name, user.is_administrator, "token-of-" + user.name);
    return "token-of-" + user.name;
  }
  User change_user(const std::string& user, const UserChange& change) override {
    const MutexLock lock(mutex_);
    for (auto& [token, known] : tokens_) {
      if (known.name != user) continue;
      known.account = change.account.value_or(known.account);
      known.is_trusted = change.is_trusted.value_or(known.is_trusted);
      return known;
    }
    throw missing("User", user);
  }
  std::string renew_token(const std::string& user) override {
    add_user(user, false, "new-token-of-" + user);
    return "new-token-of-" + user;
  }
  void delete_user(const std::string& user) override {
    const MutexLock lock(mutex_);
    std::erase_if(tokens_, [&](const auto& entry) { return entry.second.name == user; });
  }

  // ---- workspaces
  Page<Workspace> workspaces(const User& user, const PageRequest&) override {
    const MutexLock lock(mutex_);
    Page<Workspace> page;
    for (const auto& [name, owners] : workspaces_) {
      if (user.is_administrator || owners.contains(user.name)) page.items.push_back({name, "here", 0});
    }
    return page;
  }
  Workspace workspace(const std::string& name) override { return count(Workspace{name, "here", 1'500'000}); }
  Created<Workspace> create_workspace(const User& user, const NewWorkspace& workspace) override {
    const MutexLock lock(mutex_);
    const bool is_new = workspaces_.emplace(workspace.name, std::set<std::string>{user.name}).second;
    return {{workspace.name, workspace.location, 0}, is_new};
  }
  void delete_workspace(const std::string& name) override {
    count(0);
    const MutexLock lock(mutex_);
    workspaces_.erase(name);
  }
  std::vector<std::string> owners(const std::string& workspace) override {
    count(0);
    const MutexLock lock(mutex_);
    return {workspaces_[workspace].begin(), workspaces_[workspace].end()};
  }
  void add_owner(const std::string& workspace, const std::string& user) override {
    count(0);
    const MutexLock lock(mutex_);
    workspaces_[workspace].insert(user);
  }
  void remove_owner(const std::string& workspace, const std::string& user) override {
    count(0);
    const MutexLock lock(mutex_);
    workspaces_[workspace].erase(user);
  }
  void set_quotas(const std::string&, const Quotas&) override { count(0); }
  std::vector<Usage> usages(const std::string&) override { return count(std::vector<Usage>{{"cores", "Count", 3, 8}}); }

  // ---- clusters
  Page<Cluster> clusters(const std::string&, const PageRequest&) override { return count(Page<Cluster>{}); }
  Cluster cluster(const ClusterName& name) override {
    count(0);
    const MutexLock lock(mutex_);
    const auto found = clusters_.find(name.workspace + "/" + name.cluster);
    if (found == clusters_.end()) throw missing("Cluster", name.cluster);
    return found->second;
  }
  Created<Cluster> create_cluster(const ClusterName& name, const spec::ClusterSpec& spec) override {
    count(0);
    const MutexLock lock(mutex_);
    const auto [at, is_new] =
        clusters_.emplace(name.workspace + "/" + name.cluster, Cluster{.name = name, .spec = spec});
    if (!is_new && !(at->second.spec == spec)) {
      throw ServiceError(ServiceError::Kind::kConflict, "ClusterExists", "there is another cluster of this name");
    }
    return {at->second, is_new};
  }
  Cluster scale_cluster(const ClusterName& name, const Scale& scale) override {
    {
      const MutexLock lock(mutex_);
      last_scale_ = scale;
    }
    return cluster(name);
  }
  void delete_cluster(const ClusterName&) override { count(0); }
  std::vector<Node> nodes(const ClusterName&) override {
    return count(std::vector<Node>{{.name = "tvm-1", .state = NodeState::kIdle, .address = "127.0.0.2"}});
  }

  // ---- experiments
  Page<Experiment> experiments(const std::string&, const PageRequest&) override { return count(Page<Experiment>{}); }
  Experiment experiment(const ExperimentName& name) override { return count(Experiment{.name = name}); }
  Created<Experiment> create_experiment(const ExperimentName& name) override {
    return count(Created<Experiment>{{.name = name}, true});
  }
  void delete_experiment(const ExperimentName&) override { count(0); }

  // ---- jobs
  Page<Job> jobs(const std::string& workspace, const JobFilter& filter, const PageRequest& request) override {
    count(0);
    const MutexLock lock(mutex_);
    Page<Job> page;
    for (const auto& [name, job] : jobs_) {
      const bool wanted = job.name.workspace == workspace && (!filter.state || *filter.state == job.execution_state) &&
                          name > request.after && (!filter.experiment || *filter.experiment == job.name.experiment);
      if (!wanted) continue;
      if (page.items.size() == static_cast<std::size_t>(request.limit)) {
        page.next = key(page.items.back().name);
        break;
      }
      page.items.push_back(job);
    }
    return page;
  }
  Job job(const JobName& name) override {
    count(0);
    const MutexLock lock(mutex_);
    const auto found = jobs_.find(key(name));
    if (found == jobs_.end()) throw missing("Job", name.job);
    return found->second;
  }
  Created<Job> submit(const JobName& name, const Submission& submission) override {
    count(0);
    const MutexLock lock(mutex_);
    last_submission_ = submission;
    const auto [at, is_new] = jobs_.emplace(key(name), Job{.name = name, .uuid = "uuid", .spec = submission.spec});
    if (!is_new && !(at->second.spec == submission.spec)) {
      throw ServiceError(ServiceError::Kind::kConflict, "JobExists", "there is another job of this name", name.job);
    }
    return {at->second, is_new};
  }
  Job terminate(const JobName& name) override { return job(name); }
  Job terminate_without_nodes(const JobName& name) override { return job(name); }
  Job retry(const JobName& name) override { return job(name); }
  void delete_job(const JobName& name) override {
    count(0);
    const MutexLock lock(mutex_);
    if (jobs_.erase(key(name)) == 0) throw missing("Job", name.job);
  }
  Explanation why(const JobName&) override {
    return count(Explanation{"waitingForNodes", "it needs 2 nodes and 1 is idle", {"gyre cluster resize"}, 2'000'000});
  }

  // ---- events
  std::vector<Event> events(const EventScope& scope, std::int64_t after, int most) override {
    count(0);
    const MutexLock lock(mutex_);
    std::vector<Event> found;
    for (const auto& [name, event] : events_) {
      const bool wanted = name.workspace == scope.workspace && event.sequence > after &&
                          (scope.job.empty() || (scope.job == name.job && scope.experiment == name.experiment));
      if (wanted && found.size() < static_cast<std::size_t>(most)) found.push_back(event);
    }
    return found;
  }
  std::unique_ptr<Watch> watch(const EventScope&, std::function<void()> changed) override {
    struct Held : Watch {
      std::shared_ptr<std::function<void()>> changed;
    };
    auto held = std::make_unique<Held>();
    held->changed = std::make_shared<std::function<void()>>(std::move(changed));
    const MutexLock lock(mutex_);
    watchers_.push_back(held->changed);
    return held;
  }

  // ---- files
  std::vector<OutputDirectory> output_directories(const JobName& name) override {
    job(name);
    return {{"stdouterr", directory_, std::filesystem::path(name.job) / "stdouterr"},
            {"MODEL", directory_, std::filesystem::path(name.job) / "outputs" / "Models"}};
  }
  bool files_are_complete(const JobName& name) override {
    const ExecutionState state = job(name).execution_state;
    return state == ExecutionState::kSucceeded || state == ExecutionState::kFailed;
  }
  std::shared_ptr<void> room_for_code(const User&, const std::string&, const std::string&, std::uint64_t) override {
    return nullptr;
  }
  void store_code(const User&, const std::string&, const std::string& sha256, UniqueFd archive,
                  std::uint64_t bytes) override {
    count(0);
    std::string text(bytes, '\0');
    const ssize_t got = ::read(archive.get(), text.data(), text.size());
    const MutexLock lock(mutex_);
    code_[sha256] = text.substr(0, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  bool has_code(const std::string&, const std::string& sha256) override {
    count(0);
    const MutexLock lock(mutex_);
    return code_.contains(sha256);
  }

 private:
  static std::string key(const JobName& name) { return name.workspace + "-" + name.experiment + "-" + name.job; }
  static ServiceError missing(const std::string& kind, const std::string& name) {
    return {ServiceError::Kind::kNotFound, kind + "NotFound", "there is no " + kind + " '" + name + "'", name};
  }
  template <typename Value>
  Value count(Value value) {
    const MutexLock lock(mutex_);
    ++calls_;
    return value;
  }

  std::filesystem::path directory_;
  mutable Mutex mutex_;
  int calls_ GYRE_GUARDED_BY(mutex_) = 0;
  std::map<std::string, User> tokens_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, std::set<std::string>> workspaces_ GYRE_GUARDED_BY(mutex_);  // With their owners.
  std::map<std::string, Cluster> clusters_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, Job> jobs_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, std::string> code_ GYRE_GUARDED_BY(mutex_);
  std::vector<std::pair<JobName, Event>> events_ GYRE_GUARDED_BY(mutex_);
  std::list<std::weak_ptr<std::function<void()>>> watchers_ GYRE_GUARDED_BY(mutex_);
  Submission last_submission_ GYRE_GUARDED_BY(mutex_);
  Scale last_scale_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::api
