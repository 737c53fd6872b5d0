#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
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

/// The catalog, for several threads.
struct Ledger {
  /// `folder`: of the service.
  Ledger(catalog::Catalog opened, const std::filesystem::path& folder, Logger logger)
      : catalog(std::move(opened)), code(folder / "code"), ends(folder / "ended.log", std::move(logger)) {}

  Mutex mutex;
  catalog::Catalog catalog GYRE_GUARDED_BY(mutex);
  CodeStore code;
  EndLog ends GYRE_GUARDED_BY(mutex);
  /// That the catalog was restored, until it is known what had been running.
  std::optional<catalog::BackupMark> restored GYRE_GUARDED_BY(mutex);
  /// What the folder knows of it is entered.
  bool taken_back GYRE_GUARDED_BY(mutex) = false;
  /// When attempts started, by the steady clock; after a restart of the machine, when the service came back.
  std::map<std::string, SteadyClock::time_point> started GYRE_GUARDED_BY(mutex);
  /// Attempts that a service before this one had handed to their drivers, or was about to.
  std::set<std::string> inherited GYRE_GUARDED_BY(mutex);
  /// Before which queued jobs do not begin again.
  std::map<catalog::Id, SteadyClock::time_point> retries GYRE_GUARDED_BY(mutex);
  /// What jobs whose attempts are planned have to wait for before these begin.
  std::map<catalog::Id, std::string> waits GYRE_GUARDED_BY(mutex);
  /// Why attempts are being ended.
  std::map<std::string, orders::StopReason> stop_reasons GYRE_GUARDED_BY(mutex);

  // By name; resources::ServiceError(kNotFound) where there is none. What is being deleted is still there.
  catalog::Workspace workspace(const std::string& name) GYRE_REQUIRES(mutex);
  catalog::Cluster cluster(const resources::ClusterName& name) GYRE_REQUIRES(mutex);
  catalog::Experiment experiment(const resources::ExperimentName& name) GYRE_REQUIRES(mutex);
  catalog::Job job(const resources::JobName& name) GYRE_REQUIRES(mutex);
  catalog::User user(const std::string& name) GYRE_REQUIRES(mutex);
  catalog::EventFilter filter(const resources::EventScope& scope) GYRE_REQUIRES(mutex);

  /// With its code, where no other job has it. It is being deleted and has finished.
  void remove_job(const catalog::Job& job) GYRE_REQUIRES(mutex);
  /// With its jobs, all of which have finished.
  void remove_experiment(catalog::Id id) GYRE_REQUIRES(mutex);
  /// Of a workspace.
  void remove_experiments(catalog::Id workspace) GYRE_REQUIRES(mutex);

  /// The names of what a number stands for.
  std::string workspace_name(catalog::Id id) GYRE_REQUIRES(mutex) { return catalog.workspaces().get(id).name; }
  std::string experiment_name(catalog::Id id) GYRE_REQUIRES(mutex) { return catalog.experiments().get(id).name; }
};

}  // namespace gyre::jobs::service
