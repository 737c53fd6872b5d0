#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "gyre/jobs/client/connection.h"
#include "gyre/net/endpoint.h"

namespace gyre::jobs::service {
class Service;
}

namespace gyre::app {

/// The verb `gyre server`: a job service with its HTTP interface, until it is ended.
class ServerCommand {
 public:
  explicit ServerCommand(CLI::App& app);

  /// UsageError, gyre::Error.
  int run(const std::vector<std::string>& environment) const;

 private:
  int back_up(const std::vector<std::string>& environment) const;
  std::filesystem::path folder_in(const std::vector<std::string>& environment) const;
  /// Where commands of this user find the server.
  std::filesystem::path file_in(const std::vector<std::string>& environment) const;
  /// The door of this machine first.
  std::vector<net::Endpoint> endpoints(const std::vector<std::string>& environment,
                                       const std::filesystem::path& folder) const;

  CLI::App* verb_;
  std::string folder_;
  std::vector<std::string> listen_;
  std::string server_file_;
  std::string job_user_ = "nobody";
  int lease_seconds_ = 120;
  std::vector<std::string> limits_;
  std::string keep_free_ = "1GB";
  std::string code_cache_ = "500MB";
  std::string environment_cache_ = "20GB";
  int keep_jobs_days_ = 0;
  int keep_events_days_ = 365;
  int keep_code_days_ = 30;
  CLI::App* backup_verb_ = nullptr;
  std::string backup_;
  std::string log_level_ = "info";
};

}  // namespace gyre::app
