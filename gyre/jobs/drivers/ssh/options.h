#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gyre/jobs/drivers/engine_options.h"

namespace gyre::jobs::drivers::ssh {

struct SshOptions : EngineOptions {
  std::vector<std::string> hosts;  ///< As ssh knows them; each can be a node.
  std::map<std::string, std::string>
      host_keys;                       ///< By host: the fingerprint ("SHA256:…") of the key that it must have.
  std::filesystem::path config = {};   ///< Of ssh; empty: the user's.
  std::filesystem::path program = {};  ///< `gyre` here, of which hosts get a copy.
  bool names_gyre = false;             ///< EngineOptions::gyre is on the hosts already.
};

/// From the driverOptions of a cluster. Error(kInvalidArgument) names one that is missing, wrong or not known.
SshOptions options_from(const std::map<std::string, std::string>& driver_options);

}  // namespace gyre::jobs::drivers::ssh
