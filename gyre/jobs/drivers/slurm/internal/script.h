#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/drivers/internal/home.h"
#include "gyre/jobs/drivers/node_engine.h"
#include "gyre/jobs/drivers/slurm/driver.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::drivers::slurm {

/// In the attempt's part of the service's folder.
std::filesystem::path batch_file(const Home& home, const std::string& attempt);

/// Of Slurm's job: whose it is. Words about its end come behind it.
std::string comment_of(const Service& service);
/// What comment_of() was made from; nothing: it is no such comment.
std::optional<Service> service_in(const std::string& comment);
/// Those that are behind it.
std::string words_in(const std::string& comment);

// Pure.

/// `key`: what the agents prove to the service, 64 digits; nothing else in it is a secret.
std::string batch_script(const SlurmOptions& options, const Service& service, const orders::WorkOrder& order,
                         const std::string& key);
std::vector<std::string> sbatch_arguments(const SlurmOptions& options, const Home& home, const Service& service,
                                          const orders::WorkOrder& order);

}  // namespace gyre::jobs::drivers::slurm
