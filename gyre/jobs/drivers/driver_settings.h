#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "gyre/base/log.h"
#include "gyre/jobs/node/expansion.h"

namespace gyre::jobs::drivers {

/// What a service gives to each of its drivers.
struct DriverSettings {
  /// Everything of the service and of the nodes lies here; absolute and short, because sockets are made in it. The
  /// users as whom jobs run must be able to reach it.
  std::filesystem::path folder;
  std::string gyre_program;         ///< Absolute: node programs are started from it.
  node::Variables environment;      ///< Of the node programs; what jobs find of it, `gyre agent` decides.
  std::string job_user = "nobody";  ///< As whom jobs run where the service is root; else they run as we do.
  /// Of a node program that is not heard of; its node is lost after it and `margin`.
  std::chrono::milliseconds lease{10'000};
  std::chrono::milliseconds margin{3'000};
  /// Before a node program that has died twice in a row is started again; it doubles with each time, and after six
  /// starts the attempt fails.
  std::chrono::milliseconds restart_pause{1'000};
  /// How many bytes of the folder's file system logs that nodes send, and what users upload, leave free.
  std::uint64_t keep_free_bytes = 0;
  /// How many bytes of archives of code each node keeps for later jobs.
  std::uint64_t code_cache_bytes = 500'000'000;
  /// How many bytes of virtual environments of each account its machine keeps for later jobs.
  std::uint64_t environment_bytes = 20'000'000'000;
  Logger logger = null_logger();

  /// Where the logs of jobs lie that nodes send.
  std::filesystem::path logs() const { return folder / "logs"; }
};

}  // namespace gyre::jobs::drivers
