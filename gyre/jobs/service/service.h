#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/account.h"
#include "gyre/base/clock.h"
#include "gyre/jobs/drivers/driver_settings.h"
#include "gyre/jobs/drivers/make_driver.h"
#include "gyre/jobs/service/job_service.h"

namespace gyre::jobs::service {

/// Who may submit jobs to the workspaces that they may use, and as which account of the machine these run.
enum class Submitters {
  kEverybody,  ///< All jobs run as one account: the service's, or `job_user` if that is root.
  kTrusted,    ///< Administrators, and users whom they trust with that one account. Others may look.
  kAccounts,   ///< Users with an account, as which their jobs run; `job_user` is that of root's own. Needs root.
};

/// Of the service and of its nodes; in the folder the catalog lies, too.
struct ServiceOptions : drivers::DriverSettings {
  std::string subscription = "00000000-0000-0000-0000-000000000000";  ///< First part of the paths of logs and outputs.
  std::string resource_group = "gyre";                                ///< Second part.
  Submitters submitters = Submitters::kEverybody;
  /// How many jobs one user may have in the queue, unless everybody may submit; administrators may have any number.
  std::int64_t queued_jobs_per_user = 10'000;
  /// How many bytes of uploaded code are kept of one user, unless everybody may submit.
  std::uint64_t code_bytes_per_user = std::uint64_t{5} << 30;
  /// How long the logs of one job may become, on all its nodes together, unless everybody may submit; 0: at will.
  std::uint64_t log_bytes_per_job = std::uint64_t{4} << 30;
  /// The number of an account of this machine; nothing where there is none. Thread-safe.
  std::function<std::optional<uid_t>(const std::string& name)> account_number = gyre::account_number;
  /// The wall clock, in microseconds since 1970. It may jump: nothing but the times in records comes from it.
  std::function<resources::TimeUs()> wall_clock = wall_clock_us;
  /// For how long things are kept; 0: for ever. Records of ended jobs, with their code and the logs that nodes have
  /// sent, but without their files.
  std::chrono::hours keep_jobs{0};
  std::chrono::hours keep_events{24 * 365};  ///< But all of jobs that have not ended.
  std::chrono::hours keep_code{24 * 30};     ///< From the end of the last job that uses it.
  /// Before the first further attempt of a job that failed through no fault of its own; it doubles with each.
  std::chrono::milliseconds retry_pause{1'000};
  std::chrono::milliseconds longest_retry_pause{std::chrono::minutes(5)};
  /// How drivers are made.
  std::function<std::unique_ptr<drivers::Driver>(const std::string& kind, const drivers::DriverOptions& options,
                                                 const drivers::DriverSettings& settings)>
      make_driver = drivers::make_driver;
};

/// The job service: catalog, scheduler and nodes behind one interface. Clusters are virtual nodes of this machine, or
/// nodes of another engine: see drivers::Driver.
///
/// What it is about to do stands in the catalog before it is done. When it is destroyed, or killed, jobs and node
/// programs go on; the next service in the same folder takes them over.
///
/// Jobs and clusters are deleted by a thread of the service, as soon as their jobs have ended. Experiments and
/// workspaces with jobs that have not finished, and workspaces with clusters, are refused instead: kConflict
/// "ExperimentInUse", "WorkspaceInUse". The records of a cluster's finished jobs stay when the cluster goes, and the
/// files of jobs whatever is deleted, but for the logs that nodes have sent: they go with the records of their jobs.
class Service final : public JobService {
 public:
  /// Error(kUnsupported) when another service works in the folder; Error(kIo), Error(kCorruptData).
  explicit Service(const ServiceOptions& options);
  ~Service() override;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  std::optional<resources::User> authenticate(std::string_view token) override;
  std::optional<resources::User> user_with_account(const std::string& account) override;
  bool may_use(const resources::User& user, const std::string& workspace) override;
  void check_may_change(const resources::User& user) override;
  std::vector<resources::User> users() override;
  std::string create_user(const resources::User& user) override;
  resources::User change_user(const std::string& user, const resources::UserChange& change) override;
  std::string renew_token(const std::string& user) override;
  void delete_user(const std::string& user) override;

  resources::Page<resources::Workspace> workspaces(const resources::User& user,
                                                   const resources::PageRequest& page) override;
  resources::Workspace workspace(const std::string& name) override;
  resources::Created<resources::Workspace> create_workspace(const resources::User& user,
                                                            const resources::NewWorkspace& workspace) override;
  void delete_workspace(const std::string& name) override;
  std::vector<std::string> owners(const std::string& workspace) override;
  void add_owner(const std::string& workspace, const std::string& user) override;
  void remove_owner(const std::string& workspace, const std::string& user) override;
  std::vector<resources::Usage> usages(const std::string& workspace) override;
  void set_quotas(const std::string& workspace, const resources::Quotas& quotas) override;

  resources::Page<resources::Cluster> clusters(const std::string& workspace,
                                               const resources::PageRequest& page) override;
  resources::Cluster cluster(const resources::ClusterName& name) override;
  resources::Created<resources::Cluster> create_cluster(const resources::ClusterName& name,
                                                        const spec::ClusterSpec& spec) override;
  resources::Cluster scale_cluster(const resources::ClusterName& name, const resources::Scale& scale) override;
  void delete_cluster(const resources::ClusterName& name) override;
  std::vector<resources::Node> nodes(const resources::ClusterName& name) override;
  resources::ClusterUse use(const resources::ClusterName& name, std::chrono::seconds time) override;

  resources::Page<resources::Experiment> experiments(const std::string& workspace,
                                                     const resources::PageRequest& page) override;
  resources::Experiment experiment(const resources::ExperimentName& name) override;
  resources::Created<resources::Experiment> create_experiment(const resources::ExperimentName& name) override;
  void delete_experiment(const resources::ExperimentName& name) override;

  resources::Page<resources::Job> jobs(const std::string& workspace, const resources::JobFilter& filter,
                                       const resources::PageRequest& page) override;
  resources::Job job(const resources::JobName& name) override;
  std::string code_of(const resources::JobName& name) override;
  resources::Created<resources::Job> submit(const resources::JobName& name,
                                            const resources::Submission& submission) override;
  resources::Job terminate(const resources::JobName& name) override;
  resources::Job terminate_without_nodes(const resources::JobName& name) override;
  resources::Job retry(const resources::JobName& name) override;
  std::shared_ptr<hub::NodeStream> open_stream(const resources::User& user, const resources::JobName& name,
                                               const StreamTarget& target) override;
  std::vector<std::string> without_secrets(const resources::JobName& name,
                                           const std::vector<std::string>& words) override;
  void check_stream(const resources::User& user, const resources::JobName& name, const StreamTarget& target) override;
  void delete_job(const resources::JobName& name) override;
  resources::Explanation why(const resources::JobName& name) override;

  std::vector<resources::Event> events(const resources::EventScope& scope, std::int64_t after, int most) override;
  std::unique_ptr<Watch> watch(const resources::EventScope& scope, std::function<void()> changed) override;

  std::vector<resources::OutputDirectory> output_directories(const resources::JobName& name) override;
  bool files_are_complete(const resources::JobName& name) override;
  int attempts_of(const resources::JobName& name) override;
  std::shared_ptr<void> room_for_code(const resources::User& user, const std::string& workspace,
                                      const std::string& sha256, std::uint64_t bytes) override;
  void store_code(const resources::User& user, const std::string& workspace, const std::string& sha256,
                  UniqueFd archive, std::uint64_t bytes) override;
  bool has_code(const std::string& workspace, const std::string& sha256) override;

 private:
  class Work;
  struct StreamPlace;
  StreamPlace stream_place(const resources::User& user, const resources::JobName& name, const StreamTarget& target);
  /// resources::ServiceError kInvalid or kConflict.
  void check_user(const resources::User& user);
  /// kConflict StoredClusterUnreadable where it cannot be read.
  spec::ClusterSpec spec_of(const resources::ClusterName& name);
  /// The job as it is kept: with the digest that its image's name leads to now.
  spec::JobSpec pinned(const resources::JobName& name, const resources::Submission& submission);

  std::unique_ptr<Work> work_;
};

}  // namespace gyre::jobs::service
