#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "gyre/jobs/drivers/slurm/driver.h"
#include "gyre/jobs/drivers/slurm/internal/script.h"
#include "gyre/jobs/hub/hub.h"
#include "gyre/net/handshake.h"

namespace gyre::jobs::drivers::slurm {

// Where a driver's service is and what it calls itself: made at the first start, and the same again after a restart.
// Error(kIo).

std::string name_of_service(const SlurmOptions& options);
Home home_of(const SlurmOptions& options);
/// What this service has in the folder that users share; empty: there is no such folder. Error(kInvalidArgument).
std::filesystem::path own_shared_folder(const SlurmOptions& options, const std::string& name);
std::string own_address(const SlurmOptions& options);
/// At the port where it was before, if it can be had: the agents of its jobs know no other.
std::unique_ptr<hub::Hub> make_hub(const SlurmOptions& options, const net::JobKey& key, const Home& home);

/// Nothing where there is no such file.
std::string first_line_of(const std::filesystem::path& file);
void write_text(const std::filesystem::path& file, const std::string& text);

}  // namespace gyre::jobs::drivers::slurm
