#include "gyre/jobs/node/node_job.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>

#include <array>
#include <functional>
#include <thread>
#include <utility>

#include "gyre/base/boot.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/node/internal/attempt_keeper.h"
#include "gyre/jobs/node/internal/commands.h"
#include "gyre/jobs/node/internal/saved_attempt.h"
#include "gyre/net/notifier.h"

namespace gyre::jobs::node {

using orders::NodeFacts;
using orders::NodeReport;
using orders::StopReason;
using orders::WorkOrder;

JobUser find_job_user(const std::string& name) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 16'384> text;
  ::getpwnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
  if (found == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no user '{}' for jobs to run as", name));
  }
  if (found->pw_uid == 0) throw Error(ErrorCode::kInvalidArgument, "jobs do not run as root; name another user");
  JobUser user;
  user.name = name;
  user.id.user = found->pw_uid;
  user.id.group = found->pw_gid;
  int count = 64;
  user.id.groups.resize(static_cast<std::size_t>(count));
  if (::getgrouplist(name.c_str(), found->pw_gid, user.id.groups.data(), &count) < 0) count = 0;
  user.id.groups.resize(static_cast<std::size_t>(count));
  return user;
}

namespace {

/// With the order's account, by its name, as this machine knows it.
NodeOptions options_for(NodeOptions options, const WorkOrder& order) {
  if (options.user && !order.account.empty()) options.user = find_job_user(order.account);
  return options;
}

}  // namespace

/// The thread of an attempt, and what it shares with others.
class NodeJob::Run final : internal::ReportSink {
 public:
  Run(NodeOptions options, const internal::SavedAttempt& state)
      : options_(std::move(options)), order_(state.order), keeper_(options_, state, commands_, *this) {
    report_.attempt = order_.attempt;
    report_.notes = state.notes;
    report_.facts = state.facts;
    thread_ = start_thread("the job on this node", [this] { keeper_.go(); });
  }
  ~Run() override {
    commands_.leave();
    thread_.join();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  internal::Commands& commands() { return commands_; }
  const WorkOrder& order() const { return order_; }
  const net::Notifier& changed() const { return changed_; }
  NodeReport report() const {
    const MutexLock lock(mutex_);
    return report_;
  }

 private:
  void update(const std::function<void(NodeReport&)>& change) override {
    const MutexLock lock(mutex_);
    change(report_);
    changed_.notify();
  }

  const NodeOptions options_;
  const WorkOrder order_;
  internal::Commands commands_;
  net::Notifier changed_;
  mutable Mutex mutex_;
  NodeReport report_ GYRE_GUARDED_BY(mutex_);
  internal::AttemptKeeper keeper_;
  std::thread thread_;
};

NodeJob::NodeJob(const NodeOptions& options, const WorkOrder& order) {
  const NodeFolders folders(options.root, options.own);
  std::filesystem::create_directories(folders.records());
  // Orders hold secrets.
  std::filesystem::permissions(folders.own(), std::filesystem::perms::owner_all);
  internal::SavedAttempt state;
  state.order = order;
  const NodeOptions own = options_for(options, order);
  // Nodes that share a machine's links can show only one folder at a path.
  if (options.mounts == MountMethod::kLink) state.order.jobs_root.clear();
  state.started_us = wall_clock_us();
  state.started_s = internal::boot_time_s();
  state.boot = boot_id();
  internal::save(state, folders);
  run_ = std::make_unique<Run>(own, state);
}

NodeJob::NodeJob(std::unique_ptr<Run> run) : run_(std::move(run)) {}

std::unique_ptr<NodeJob> NodeJob::resume(const NodeOptions& options) {
  auto state = internal::load_state(NodeFolders(options.root, options.own));
  if (!state) return nullptr;
  return std::unique_ptr<NodeJob>(new NodeJob(std::make_unique<Run>(options_for(options, state->order), *state)));
}

NodeJob::~NodeJob() = default;

void NodeJob::run(const std::vector<NodeFacts>& facts) { run_->commands().run(facts); }
void NodeJob::finish() { run_->commands().finish(); }
void NodeJob::stop(StopReason reason, std::chrono::seconds grace) { run_->commands().stop({reason, grace}); }
void NodeJob::start_command(std::optional<int> rank, UniqueFd channel) {
  run_->commands().start({rank, std::move(channel)});
}
void NodeJob::code_came() { run_->commands().wake(); }
const WorkOrder& NodeJob::order() const { return run_->order(); }
NodeReport NodeJob::report() const { return run_->report(); }
int NodeJob::changed_fd() const { return run_->changed().fd(); }
void NodeJob::clear_changed() { run_->changed().clear(); }

}  // namespace gyre::jobs::node
