#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "gyre/jobs/drivers/engine_options.h"
#include "gyre/jobs/drivers/internal/home.h"
#include "gyre/jobs/hub/hub.h"
#include "gyre/net/handshake.h"

namespace gyre::jobs::drivers {

// Where a driver's service is and what it calls itself: made at the first start, and the same again after a restart.
// Error(kIo).

/// Makes its folders.
Home made_home(const EngineOptions& options, const std::string& kind);
std::string name_of_service(const Home& home);
/// What this service has in the folder that users share; empty: there is no such folder. Error(kInvalidArgument).
std::filesystem::path own_shared_folder(const EngineOptions& options, const std::string& name);
std::string own_address(const EngineOptions& options);
/// At the port where it was before, if it can be had: the agents of its jobs know no other.
std::unique_ptr<hub::Hub> make_hub(const EngineOptions& options, const net::JobKey& key, const Home& home);

/// Under which an engine is asked for an attempt's nodes.
std::string request_name(const std::string& attempt);
/// The name under which the node program of a node registers.
std::string registered_name(const std::string& attempt, int node);
/// The node's own folder, the same on all nodes of the attempt.
std::filesystem::path node_root(const EngineOptions& options, const std::string& attempt);

/// Nothing where there is no such file.
std::string first_line_of(const std::filesystem::path& file);
void write_text(const std::filesystem::path& file, const std::string& text);

}  // namespace gyre::jobs::drivers
