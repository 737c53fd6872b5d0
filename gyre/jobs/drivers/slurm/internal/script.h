#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/drivers/slurm/driver.h"
#include "gyre/jobs/orders/work_order.h"
#include "gyre/net/endpoint.h"

namespace gyre::jobs::drivers::slurm {

/// What the driver keeps of its attempts, in the service's own folder. Names only.
class Home {
 public:
  using Path = std::filesystem::path;

  explicit Home(Path folder) : folder_(std::move(folder)) {}
  const Path& folder() const { return folder_; }
  Path key() const { return folder_ / "agents.key"; }
  Path port() const { return folder_ / "port"; }  ///< Where the service listens, as text: its agents look for it there.
  Path attempts() const { return folder_ / "attempts"; }
  Path attempt(const std::string& name) const { return attempts() / name; }
  Path records(const std::string& name) const { return attempt(name) / "records"; }
  Path slurm_job(const std::string& name) const { return attempt(name) / "slurm_job"; }  ///< Its id, as text.
  Path begun(const std::string& name) const { return attempt(name) / "begun"; }          ///< Once Slurm runs it.
  Path batch_script(const std::string& name) const { return attempt(name) / "batch.sh"; }

 private:
  Path folder_;
};

/// Where the service is, for the nodes and for other services.
struct Service {
  std::string name;     ///< No other service's.
  net::Endpoint place;  ///< Where the nodes reach it.
};

/// The name under which the node program of a node registers; tasks of srun make it from their number.
std::string registered_name(const std::string& attempt, int node);
/// The node's own folder, the same on all nodes of the attempt.
std::filesystem::path node_root(const SlurmOptions& options, const std::string& attempt);
std::string job_name(const std::string& attempt);

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
