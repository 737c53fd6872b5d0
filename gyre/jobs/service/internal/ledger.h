#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/catalog/catalog.h"
#include "gyre/jobs/orders/node_report.h"
#include "gyre/jobs/resources/resources.h"
#include "gyre/jobs/service/internal/code_store.h"
#include "gyre/jobs/service/internal/end_log.h"

namespace gyre::jobs::service {

/// What the service knows of an attempt that has not ended, and the catalog does not.
struct LiveAttempt {
  catalog::Id job = 0;
  /// By the steady clock; after a restart of the machine, when the service came back.
  SteadyClock::time_point started;
  /// A service before this one had handed it to its driver, or was about to.
  bool inherited = false;
  /// Why it is being ended.
  std::optional<orders::StopReason> stop_reason = {};
  /// What it has to wait for before it begins, while it is planned.
  std::string wait = {};
};

/// The catalog, for several threads.
struct Ledger {
  /// `folder`: of the service.
  Ledger(catalog::Catalog opened, const std::filesystem::path& folder, Logger logger)
      : catalog(std::move(opened)),
        code(folder / "code"),
        logs(folder / "logs"),
        ends(folder / "ended.log", std::move(logger)) {}

  Mutex mutex;
  catalog::Catalog catalog GYRE_GUARDED_BY(mutex);
  CodeStore code;
  /// Those that nodes have sent, of each job a folder by its uuid.
  const std::filesystem::path logs;
  EndLog ends GYRE_GUARDED_BY(mutex);
  /// That the catalog was restored, until it is known what had been running.
  std::optional<catalog::BackupMark> restored GYRE_GUARDED_BY(mutex);
  /// What the folder knows of it is entered.
  bool taken_back GYRE_GUARDED_BY(mutex) = false;
  /// All attempts that have not ended, by id.
  std::map<std::string, LiveAttempt> live GYRE_GUARDED_BY(mutex);
  /// Before which queued jobs do not begin again.
  std::map<catalog::Id, SteadyClock::time_point> retries GYRE_GUARDED_BY(mutex);

  // By name; resources::ServiceError(kNotFound) where there is none. What is being deleted is still there.
  catalog::Workspace workspace(const std::string& name) GYRE_REQUIRES(mutex);
  catalog::Cluster cluster(const resources::ClusterName& name) GYRE_REQUIRES(mutex);
  catalog::Experiment experiment(const resources::ExperimentName& name) GYRE_REQUIRES(mutex);
  catalog::Job job(const resources::JobName& name) GYRE_REQUIRES(mutex);
  catalog::User user(const std::string& name) GYRE_REQUIRES(mutex);
  catalog::EventFilter filter(const resources::EventScope& scope) GYRE_REQUIRES(mutex);
  /// Calls `visit` for every cluster.
  void for_each_cluster(const std::function<void(const catalog::Cluster&)>& visit) GYRE_REQUIRES(mutex);
  /// Whether a service before this one had it.
  bool is_inherited(const std::string& attempt) const GYRE_REQUIRES(mutex);
  /// What the job's planned attempt waits for; empty where it waits for nothing.
  std::string wait_of(catalog::Id job) const GYRE_REQUIRES(mutex);

  /// With its code, where no other job has it, and the logs that its nodes have sent. It is being deleted and has
  /// finished.
  void remove_job(const catalog::Job& job) GYRE_REQUIRES(mutex);
  /// Frees the disk of the logs of removed jobs, which may take long.
  void free_removed_logs() const GYRE_EXCLUDES(mutex);
  /// With its jobs, all of which have finished.
  void remove_experiment(catalog::Id id) GYRE_REQUIRES(mutex);
  /// Of a workspace.
  void remove_experiments(catalog::Id workspace) GYRE_REQUIRES(mutex);

  /// The names of what a number stands for.
  std::string workspace_name(catalog::Id id) GYRE_REQUIRES(mutex) { return catalog.workspaces().get(id).name; }
  std::string experiment_name(catalog::Id id) GYRE_REQUIRES(mutex) { return catalog.experiments().get(id).name; }
};

}  // namespace gyre::jobs::service
