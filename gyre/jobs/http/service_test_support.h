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
#include "gyre/jobs/hub/node_stream.h"
#include "gyre/jobs/resources/service_error.h"
#include "gyre/jobs/service/job_service.h"

// For tests of the HTTP interface: a service that keeps everything in memory and runs nothing. Tests make jobs finish.
namespace gyre::jobs::http {

class MemoryService : public service::JobService {
 public:
  explicit MemoryService(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // ---- for tests
  void add_user(const std::string& name, bool is_administrator, const std::string& token) {
    const MutexLock lock(mutex_);
    tokens_[token] = {name, is_administrator};
  }
  void set_attempts(const resources::JobName& name, int attempts) {
    const MutexLock lock(mutex_);
    jobs_.at(key(name)).attempts = attempts;
  }
  void set_state(const resources::JobName& name, resources::ExecutionState state) {
    std::vector<std::shared_ptr<std::function<void()>>> watchers;
    {
      const MutexLock lock(mutex_);
      jobs_.at(key(name)).execution_state = state;
      events_.push_back(
          {name, resources::Event{.sequence = static_cast<std::int64_t>(events_.size()) + 1,
                                  .time = 1'000'000,
                                  .subject = "job",
                                  .name = name.job,
                                  .to = state == resources::ExecutionState::kRunning ? "running" : "succeeded"}});
      for (const auto& weak : watchers_) {
        if (auto watcher = weak.lock()) watchers.push_back(std::move(watcher));
      }
    }
    for (const auto& watcher : watchers) (*watcher)();
  }
  /// Which open_stream() gives.
  void set_stream(std::shared_ptr<hub::NodeStream> stream) {
    const MutexLock lock(mutex_);
    stream_ = std::move(stream);
  }
  /// Everything that was asked for inside a workspace, but for who may use it.
  int calls() const {
    const MutexLock lock(mutex_);
    return calls_;
  }
  std::filesystem::path files_of(const resources::JobName& name) const { return directory_ / name.job / "stdouterr"; }
  resources::Submission last_submission() const {
    const MutexLock lock(mutex_);
    return last_submission_;
  }
  resources::Scale last_scale() const {
    const MutexLock lock(mutex_);
    return last_scale_;
  }

  // ---- users
  std::optional<resources::User> authenticate(std::string_view token) override {
    const MutexLock lock(mutex_);
    const auto found = tokens_.find(std::string(token));
    return found == tokens_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<resources::User> user_with_account(const std::string& account) override {
    const MutexLock lock(mutex_);
    for (const auto& [token, user] : tokens_) {
      if ((user.account.empty() ? user.name : user.account) == account) return user;
    }
    return std::nullopt;
  }
  bool may_use(const resources::User& user, const std::string& workspace) override {
    const MutexLock lock(mutex_);
    const auto found = workspaces_.find(workspace);
    return found != workspaces_.end() && (user.is_administrator || found->second.contains(user.name));
  }
  void check_may_change(const resources::User& user) override {
    if (user.name == "viewer")
      throw resources::ServiceError(resources::ServiceError::Kind::kForbidden, "NotTrusted", "viewers may look");
  }
  std::vector<resources::User> users() override {
    const MutexLock lock(mutex_);
    std::vector<resources::User> users;
    for (const auto& [token, user] : tokens_) users.push_back(user);
    return users;
  }
  std::string create_user(const resources::User& user) override {
    add_user(user.name, user.is_administrator, "token-of-" + user.name);
    return "token-of-" + user.name;
  }
  resources::User change_user(const std::string& user, const resources::UserChange& change) override {
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
  resources::Page<resources::Workspace> workspaces(const resources::User& user,
                                                   const resources::PageRequest&) override {
    const MutexLock lock(mutex_);
    resources::Page<resources::Workspace> page;
    for (const auto& [name, owners] : workspaces_) {
      if (user.is_administrator || owners.contains(user.name)) page.items.push_back({name, "here", 0});
    }
    return page;
  }
  resources::Workspace workspace(const std::string& name) override {
    return count(resources::Workspace{name, "here", 1'500'000});
  }
  resources::Created<resources::Workspace> create_workspace(const resources::User& user,
                                                            const resources::NewWorkspace& workspace) override {
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
  void set_quotas(const std::string&, const resources::Quotas&) override { count(0); }
  std::vector<resources::Usage> usages(const std::string&) override {
    return count(std::vector<resources::Usage>{{"cores", "Count", 3, 8}});
  }

  // ---- clusters
  resources::Page<resources::Cluster> clusters(const std::string&, const resources::PageRequest&) override {
    return count(resources::Page<resources::Cluster>{});
  }
  resources::Cluster cluster(const resources::ClusterName& name) override {
    count(0);
    const MutexLock lock(mutex_);
    const auto found = clusters_.find(name.workspace + "/" + name.cluster);
    if (found == clusters_.end()) throw missing("Cluster", name.cluster);
    return found->second;
  }
  resources::Created<resources::Cluster> create_cluster(const resources::ClusterName& name,
                                                        const spec::ClusterSpec& spec) override {
    count(0);
    const MutexLock lock(mutex_);
    const auto [at, is_new] =
        clusters_.emplace(name.workspace + "/" + name.cluster, resources::Cluster{.name = name, .spec = spec});
    if (!is_new && !(at->second.spec == spec)) {
      throw resources::ServiceError(resources::ServiceError::Kind::kConflict, "ClusterExists",
                                    "there is another cluster of this name");
    }
    return {at->second, is_new};
  }
  resources::Cluster scale_cluster(const resources::ClusterName& name, const resources::Scale& scale) override {
    {
      const MutexLock lock(mutex_);
      last_scale_ = scale;
    }
    return cluster(name);
  }
  void delete_cluster(const resources::ClusterName&) override { count(0); }
  std::vector<resources::Node> nodes(const resources::ClusterName&) override {
    return count(
        std::vector<resources::Node>{{.name = "tvm-1", .state = resources::NodeState::kIdle, .address = "127.0.0.2"}});
  }

  resources::ClusterUse use(const resources::ClusterName&, std::chrono::seconds time) override {
    return count(resources::ClusterUse{.begin = 0,
                                       .part_us = time.count() * 500'000,
                                       .running = {1, 2},
                                       .idle = {1, 0},
                                       .other = {0, 0},
                                       .waiting = {0, 3}});
  }

  // ---- experiments
  resources::Page<resources::Experiment> experiments(const std::string&, const resources::PageRequest&) override {
    return count(resources::Page<resources::Experiment>{});
  }
  resources::Experiment experiment(const resources::ExperimentName& name) override {
    return count(resources::Experiment{.name = name});
  }
  resources::Created<resources::Experiment> create_experiment(const resources::ExperimentName& name) override {
    return count(resources::Created<resources::Experiment>{{.name = name}, true});
  }
  void delete_experiment(const resources::ExperimentName&) override { count(0); }

  // ---- jobs
  resources::Page<resources::Job> jobs(const std::string& workspace, const resources::JobFilter& filter,
                                       const resources::PageRequest& request) override {
    count(0);
    const MutexLock lock(mutex_);
    resources::Page<resources::Job> page;
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
  resources::Job job(const resources::JobName& name) override {
    count(0);
    const MutexLock lock(mutex_);
    const auto found = jobs_.find(key(name));
    if (found == jobs_.end()) throw missing("Job", name.job);
    return found->second;
  }
  std::string code_of(const resources::JobName& name) override {
    const MutexLock lock(mutex_);
    return code_of_jobs_[key(name)];
  }
  resources::Created<resources::Job> submit(const resources::JobName& name,
                                            const resources::Submission& submission) override {
    count(0);
    const MutexLock lock(mutex_);
    last_submission_ = submission;
    const auto [at, is_new] = jobs_.emplace(
        key(name),
        resources::Job{.name = name, .uuid = "uuid", .spec = submission.spec, .submitter = submission.sender.name});
    code_of_jobs_[key(name)] = submission.code;
    if (!is_new && !(at->second.spec == submission.spec)) {
      throw resources::ServiceError(resources::ServiceError::Kind::kConflict, "JobExists",
                                    "there is another job of this name", name.job);
    }
    return {at->second, is_new};
  }
  std::shared_ptr<hub::NodeStream> open_stream(const resources::User& user, const resources::JobName& name,
                                               const service::StreamTarget& target) override {
    check_stream(user, name, target);
    const MutexLock lock(mutex_);
    return stream_;
  }
  std::vector<std::string> without_secrets(const resources::JobName& name,
                                           const std::vector<std::string>& words) override {
    job(name);
    return words;
  }
  void check_stream(const resources::User& /*user*/, const resources::JobName& name,
                    const service::StreamTarget& target) override {
    job(name);
    if (target.rank > 0) throw resources::ServiceError(resources::ServiceError::Kind::kInvalid, "NoSuchRank", "none");
  }
  resources::Job terminate(const resources::JobName& name) override { return job(name); }
  resources::Job terminate_without_nodes(const resources::JobName& name) override { return job(name); }
  resources::Job retry(const resources::JobName& name) override { return job(name); }
  void delete_job(const resources::JobName& name) override {
    count(0);
    const MutexLock lock(mutex_);
    if (jobs_.erase(key(name)) == 0) throw missing("Job", name.job);
  }
  resources::Explanation why(const resources::JobName&) override {
    return count(resources::Explanation{
        "waitingForNodes", "it needs 2 nodes and 1 is idle", {"gyre cluster resize"}, 2'000'000});
  }

  // ---- events
  std::vector<resources::Event> events(const resources::EventScope& scope, std::int64_t after, int most) override {
    count(0);
    const MutexLock lock(mutex_);
    std::vector<resources::Event> found;
    for (const auto& [name, event] : events_) {
      const bool wanted = name.workspace == scope.workspace && event.sequence > after &&
                          (scope.job.empty() || (scope.job == name.job && scope.experiment == name.experiment));
      if (wanted && found.size() < static_cast<std::size_t>(most)) found.push_back(event);
    }
    return found;
  }
  std::unique_ptr<Watch> watch(const resources::EventScope&, std::function<void()> changed) override {
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
  std::vector<resources::OutputDirectory> output_directories(const resources::JobName& name) override {
    job(name);
    return {{"stdouterr", directory_, std::filesystem::path(name.job) / "stdouterr"},
            {"MODEL", directory_, std::filesystem::path(name.job) / "outputs" / "Models"}};
  }
  bool files_are_complete(const resources::JobName& name) override {
    const resources::ExecutionState state = job(name).execution_state;
    return state == resources::ExecutionState::kSucceeded || state == resources::ExecutionState::kFailed;
  }
  int attempts_of(const resources::JobName& name) override { return job(name).attempts; }
  std::shared_ptr<void> room_for_code(const resources::User&, const std::string&, const std::string&,
                                      std::uint64_t) override {
    return nullptr;
  }
  void store_code(const resources::User&, const std::string&, const std::string& sha256, UniqueFd archive,
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
  static std::string key(const resources::JobName& name) {
    return name.workspace + "-" + name.experiment + "-" + name.job;
  }
  static resources::ServiceError missing(const std::string& kind, const std::string& name) {
    return {resources::ServiceError::Kind::kNotFound, kind + "NotFound", "there is no " + kind + " '" + name + "'",
            name};
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
  std::map<std::string, resources::User> tokens_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, std::set<std::string>> workspaces_ GYRE_GUARDED_BY(mutex_);  // With their owners.
  std::map<std::string, resources::Cluster> clusters_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, resources::Job> jobs_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, std::string> code_ GYRE_GUARDED_BY(mutex_);
  std::map<std::string, std::string> code_of_jobs_ GYRE_GUARDED_BY(mutex_);
  std::vector<std::pair<resources::JobName, resources::Event>> events_ GYRE_GUARDED_BY(mutex_);
  std::list<std::weak_ptr<std::function<void()>>> watchers_ GYRE_GUARDED_BY(mutex_);
  resources::Submission last_submission_ GYRE_GUARDED_BY(mutex_);
  resources::Scale last_scale_ GYRE_GUARDED_BY(mutex_);
  std::shared_ptr<hub::NodeStream> stream_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::jobs::http
