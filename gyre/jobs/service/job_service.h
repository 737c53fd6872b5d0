#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/jobs/resources/cluster_use.h"
#include "gyre/jobs/resources/resources.h"

namespace gyre::jobs::hub {
class NodeStream;
}

namespace gyre::jobs::service {

/// Where a stream to a job's node leads.
struct StreamTarget {
  int rank = 0;            ///< Whose node it is.
  std::string node{};      ///< By its name instead; empty: that of the rank.
  std::uint16_t port = 0;  ///< Of the node's loopback address.
  /// That is to run there instead; its rank is not looked at.
  std::optional<orders::CommandRequest> command{};
};

/// What the HTTP interface asks of the job service. Values go in and out; nothing of HTTP, and nothing of how the
/// service stores, schedules or runs anything.
///
/// Threads: every function may be called by several threads at once, and returns soon (it may wait for a disk, never
/// for a job, a node or a client).
///
/// Who may: the interface asks may_use() for the workspace that a request names before any other function, so the
/// others need not look; a workspace that the user may not use and one that does not exist look alike to clients. What
/// only administrators may do, the interface refuses others as well.
///
/// Errors: ServiceError, whose name() is the `code` that clients see and whose kind decides the status (see errors.h).
/// Any other gyre::Error becomes a status by its own code: kInvalidArgument 400, kNotFound 404, kUnsupported 501,
/// kTimeout 504, kResourceExhausted 507, kShutDown 503, the rest 500 without its message, which goes to the log.
class JobService {
 public:
  virtual ~JobService() = default;

  // ---- users
  /// Whose token this is; the service keeps hashes alone and compares in constant time.
  virtual std::optional<resources::User> authenticate(std::string_view token) = 0;
  /// Whose account of the machine this is, by its name.
  virtual std::optional<resources::User> user_with_account(const std::string& account) = 0;
  /// False also where there is no such workspace.
  virtual bool may_use(const resources::User& user, const std::string& workspace) = 0;
  /// Whether the user may do more than look in the workspaces that they may use. kForbidden "NotTrusted" says why not,
  /// and what an administrator can do.
  virtual void check_may_change(const resources::User& user) = 0;
  virtual std::vector<resources::User> users() = 0;
  /// The token of a new user: shown once, never again. kConflict "UserExists" or "AccountTaken"; kInvalid
  /// "AccountNotUsable" or "TrustHasNoEffect".
  virtual std::string create_user(const resources::User& user) = 0;
  /// kNotFound "UserNotFound"; otherwise as create_user().
  virtual resources::User change_user(const std::string& user, const resources::UserChange& change) = 0;
  /// A new token; the old one is void. kNotFound "UserNotFound".
  virtual std::string renew_token(const std::string& user) = 0;
  /// kNotFound "UserNotFound".
  virtual void delete_user(const std::string& user) = 0;

  // ---- workspaces
  /// Of the user: all of them for an administrator.
  virtual resources::Page<resources::Workspace> workspaces(const resources::User& user,
                                                           const resources::PageRequest& page) = 0;
  /// kNotFound "WorkspaceNotFound".
  virtual resources::Workspace workspace(const std::string& name) = 0;
  /// Makes it, owned by `user`, or returns the one there is.
  virtual resources::Created<resources::Workspace> create_workspace(const resources::User& user,
                                                                    const resources::NewWorkspace& workspace) = 0;
  /// With all that is in it. Deletion goes on after the call.
  virtual void delete_workspace(const std::string& name) = 0;
  virtual std::vector<std::string> owners(const std::string& workspace) = 0;
  /// kNotFound "UserNotFound". Adding an owner twice, or removing one that is none, changes nothing.
  virtual void add_owner(const std::string& workspace, const std::string& user) = 0;
  virtual void remove_owner(const std::string& workspace, const std::string& user) = 0;
  /// "cores" and "lowPriorityCores" that running jobs hold, with their quotas.
  virtual std::vector<resources::Usage> usages(const std::string& workspace) = 0;
  /// Both of them. Jobs that run go on; those that wait start when the quota allows it.
  virtual void set_quotas(const std::string& workspace, const resources::Quotas& quotas) = 0;

  // ---- clusters and their nodes
  virtual resources::Page<resources::Cluster> clusters(const std::string& workspace,
                                                       const resources::PageRequest& page) = 0;
  /// kNotFound "ClusterNotFound".
  virtual resources::Cluster cluster(const resources::ClusterName& name) = 0;
  /// Again with the same spec: the cluster there is. With another one: kConflict "ClusterExists".
  virtual resources::Created<resources::Cluster> create_cluster(const resources::ClusterName& name,
                                                                const spec::ClusterSpec& spec) = 0;
  /// All that may change of a cluster. kConflict "ClusterDeleting".
  virtual resources::Cluster scale_cluster(const resources::ClusterName& name, const resources::Scale& scale) = 0;
  /// kConflict "ClusterInUse" names the jobs that have not finished. Deletion goes on after the call.
  virtual void delete_cluster(const resources::ClusterName& name) = 0;
  virtual std::vector<resources::Node> nodes(const resources::ClusterName& name) = 0;
  /// Over the last `time`, from the cluster's events: also of times before this service has begun.
  virtual resources::ClusterUse use(const resources::ClusterName& name, std::chrono::seconds time) = 0;

  // ---- experiments
  virtual resources::Page<resources::Experiment> experiments(const std::string& workspace,
                                                             const resources::PageRequest& page) = 0;
  /// kNotFound "ExperimentNotFound".
  virtual resources::Experiment experiment(const resources::ExperimentName& name) = 0;
  virtual resources::Created<resources::Experiment> create_experiment(const resources::ExperimentName& name) = 0;
  /// With its jobs. Deletion goes on after the call.
  virtual void delete_experiment(const resources::ExperimentName& name) = 0;

  // ---- jobs
  /// Of a workspace, or of one of its experiments.
  virtual resources::Page<resources::Job> jobs(const std::string& workspace, const resources::JobFilter& filter,
                                               const resources::PageRequest& page) = 0;
  /// kNotFound "JobNotFound".
  virtual resources::Job job(const resources::JobName& name) = 0;
  /// The SHA-256 of the archive that it was submitted with; empty: none. kNotFound "JobNotFound".
  virtual std::string code_of(const resources::JobName& name) = 0;
  /// Queues it: once this returns, the job runs exactly once whatever happens to service or client. Again with the same
  /// submission: the job there is, which makes a lost answer safe to ask for again. With another one: kConflict
  /// "JobExists". kNotFound "ClusterNotFound", "ExperimentNotFound" or "CodeNotFound"; kInvalid "NodeCountTooLarge",
  /// "ContainersNotSupported" or "UnusablePath". kForbidden "NoAccount": the sender has no account to run it as.
  virtual resources::Created<resources::Job> submit(const resources::JobName& name,
                                                    const resources::Submission& submission) = 0;
  /// A queued job fails at once, a running one is ended and fails, a finished one stays as it is.
  virtual resources::Job terminate(const resources::JobName& name) = 0;
  /// Ends the record of a job whose cluster cannot be used, without its nodes; the job's error says what may still run
  /// there. kConflict "ClusterUsable" where the cluster can be used.
  virtual resources::Job terminate_without_nodes(const resources::JobName& name) = 0;
  /// Queues a job again that has failed. kConflict "JobNotFailed", "JobDeleting", "JobLeftRunning" (it was ended
  /// without its nodes), "SecretsDeleted", "ClusterDeleting" or "StoredJobUnreadable"; kNotFound "ClusterNotFound" or
  /// "CodeNotFound".
  virtual resources::Job retry(const resources::JobName& name) = 0;
  /// Opens a stream to a port of a node of a job that runs (ADR 134), or to a command that runs there (ADR 137). Waits
  /// for no node: what becomes of it, the stream says. For whoever submitted the job, as whose account it runs, and
  /// administrators: kForbidden "NotYourJob". kConflict "JobNotRunning"; kInvalid "NoSuchRank" or "NoSuchNode".
  virtual std::shared_ptr<hub::NodeStream> open_stream(const resources::User& user, const resources::JobName& name,
                                                       const StreamTarget& target) = 0;
  /// For logs: the words without values of the job's secrets; "(not shown)" once these are gone with the job's end.
  virtual std::vector<std::string> without_secrets(const resources::JobName& name,
                                                   const std::vector<std::string>& words) = 0;
  /// Throws what open_stream() would.
  virtual void check_stream(const resources::User& user, const resources::JobName& name,
                            const StreamTarget& target) = 0;
  /// A running job is ended first. Deletion goes on after the call.
  virtual void delete_job(const resources::JobName& name) = 0;
  /// Why it waits and what would start it; why it failed.
  virtual resources::Explanation why(const resources::JobName& name) = 0;

  // ---- events
  /// At most `most` events after `after` (0: from the beginning), in order; empty when there are none yet. The job's,
  /// the cluster's or the workspace's own, whichever the scope names.
  virtual std::vector<resources::Event> events(const resources::EventScope& scope, std::int64_t after, int most) = 0;
  /// Calls `changed` after each new event of the scope until the answer is destroyed; from any thread, perhaps while
  /// this function runs, perhaps for nothing. The answer may be destroyed by any thread, also by `changed` itself.
  class Watch {
   public:
    virtual ~Watch() = default;
  };
  virtual std::unique_ptr<Watch> watch(const resources::EventScope& scope, std::function<void()> changed) = 0;

  // ---- files
  /// The directories that belong to a job, by the ids that job.json gives them, with "stdouterr" for its logs and
  /// "work" for the files that `outputFiles` names. They may not exist yet. These and nothing else are served.
  virtual std::vector<resources::OutputDirectory> output_directories(const resources::JobName& name) = 0;
  /// Whether nothing writes into the job's directories any more: it has finished, and its logs are complete.
  virtual bool files_are_complete(const resources::JobName& name) = 0;
  /// How many it has had, with the one that runs.
  virtual int attempts_of(const resources::JobName& name) = 0;
  /// Before the user's archive of code comes, of at most `bytes`: keeps room for it while the answer lives. kNoRoom
  /// "TooMuchCode" where the user, or the workspace, has as much code as they may have; "DiskReserve" where the disk
  /// would become too full.
  virtual std::shared_ptr<void> room_for_code(const resources::User& user, const std::string& workspace,
                                              const std::string& sha256, std::uint64_t bytes) = 0;
  /// Keeps an archive (tar) of code under its SHA-256 (64 lower-case hexadecimal digits), which the interface has
  /// checked, as the user's. Again: nothing happens. `archive` stands at its beginning, and there is room for it.
  /// kInvalid "UnusableCode": it is none that a node unpacks.
  virtual void store_code(const resources::User& user, const std::string& workspace, const std::string& sha256,
                          UniqueFd archive, std::uint64_t bytes) = 0;
  virtual bool has_code(const std::string& workspace, const std::string& sha256) = 0;
};

}  // namespace gyre::jobs::service
