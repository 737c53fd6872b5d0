#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/agent/node_report.h"
#include "gyre/jobs/api/resources.h"
#include "gyre/jobs/catalog/catalog.h"
#include "gyre/jobs/service/internal/code_store.h"

namespace gyre::jobs::service {

/// The catalog, for several threads.
struct Ledger {
  Ledger(catalog::Catalog opened, std::filesystem::path code_folder)
      : catalog(std::move(opened)), code(std::move(code_folder)) {}

  Mutex mutex;
  catalog::Catalog catalog GYRE_GUARDED_BY(mutex);
  CodeStore code;
  /// When attempts started, by the steady clock; after a restart of the machine, when the service came back.
  std::map<std::string, SteadyClock::time_point> started GYRE_GUARDED_BY(mutex);
  /// Attempts that a service before this one had handed to their drivers, or was about to.
  std::set<std::string> inherited GYRE_GUARDED_BY(mutex);
  /// Why attempts are being ended.
  std::map<std::string, agent::StopReason> stop_reasons GYRE_GUARDED_BY(mutex);

  // By name; api::ServiceError(kNotFound) where there is none. What is being deleted is still there.
  catalog::Workspace workspace(const std::string& name) GYRE_REQUIRES(mutex);
  catalog::Cluster cluster(const api::ClusterName& name) GYRE_REQUIRES(mutex);
  catalog::Experiment experiment(const api::ExperimentName& name) GYRE_REQUIRES(mutex);
  catalog::Job job(const api::JobName& name) GYRE_REQUIRES(mutex);
  catalog::User user(const std::string& name) GYRE_REQUIRES(mutex);
  catalog::EventFilter filter(const api::EventScope& scope) GYRE_REQUIRES(mutex);

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
