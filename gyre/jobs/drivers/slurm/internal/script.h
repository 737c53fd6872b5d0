#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gyre/jobs/drivers/slurm/driver.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::drivers::slurm {

/// What the driver keeps where service and nodes see it under the same path. Names only.
class Home {
 public:
  using Path = std::filesystem::path;

  explicit Home(Path folder) : folder_(std::move(folder)) {}
  const Path& folder() const { return folder_; }
  Path key() const { return folder_ / "agents.key"; }
  Path service() const { return folder_ / "service"; }  ///< Where the service listens, as text.
  Path attempts() const { return folder_ / "attempts"; }
  Path attempt(const std::string& name) const { return attempts() / name; }
  Path shared(const std::string& name) const { return attempt(name) / "shared"; }
  Path records(const std::string& name) const { return attempt(name) / "records"; }
  Path output(const std::string& name) const { return attempt(name) / "slurm.log"; }
  Path started(const std::string& name) const { return attempt(name) / "started" / "job"; }
  Path batch_script(const std::string& name) const { return attempt(name) / "batch.sh"; }
  Path node_script(const std::string& name) const { return attempt(name) / "node.sh"; }

 private:
  Path folder_;
};

/// The name under which the node program of a node registers; tasks of srun make it from their number.
std::string registered_name(const std::string& attempt, int node);
/// The node's own folder, the same on all nodes of the attempt.
std::filesystem::path node_root(const SlurmOptions& options, const std::string& attempt);
std::string job_name(const std::string& attempt);

// Pure. No secret is in any of them.
std::string batch_script(const Home& home, const orders::WorkOrder& order);
std::string node_script(const SlurmOptions& options, const Home& home, const orders::WorkOrder& order);
std::vector<std::string> sbatch_arguments(const SlurmOptions& options, const Home& home,
                                          const orders::WorkOrder& order);

}  // namespace gyre::jobs::drivers::slurm
