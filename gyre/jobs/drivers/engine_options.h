#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "gyre/base/log.h"
#include "gyre/jobs/hub/log_store.h"
#include "gyre/jobs/node/expansion.h"

namespace gyre::jobs::drivers {

/// What is the same for the drivers of all engines.
struct EngineOptions {
  std::filesystem::path folder;  ///< Of the service's own; what must survive a restart.
  /// Where jobs have what their nodes share: the same folder under the same path for the service and on all nodes.
  /// Empty: each node has its own.
  std::filesystem::path shared_folder = {};
  std::filesystem::path node_folder = "/tmp";  ///< On each node; its own where they have a disk.
  std::string address;                         ///< Where nodes reach the service. Empty: this host's address.
  int port = 0;                                ///< 0: any.
  std::string gyre = "gyre";                   ///< The program on the nodes.
  node::Variables environment;                 ///< Of the engine's commands, and of the node programs.
  std::string job_user = "nobody";             ///< As whom jobs run where the service is root.
  std::chrono::milliseconds lease{60'000};
  std::chrono::milliseconds margin{10'000};
  std::chrono::milliseconds poll{1'000};          ///< How often the engine is asked while it has nodes of ours.
  std::chrono::milliseconds outage_pause{5'000};  ///< Before one that does not answer is asked again.
  std::chrono::milliseconds longest_start{
      60'000};                       ///< From when the engine runs an attempt until all node programs have come.
  std::chrono::seconds give_up{60};  ///< Node programs without a job and a service end after so long.
  hub::LogStoreOptions logs = {};
  Logger logger = null_logger();
};

}  // namespace gyre::jobs::drivers
