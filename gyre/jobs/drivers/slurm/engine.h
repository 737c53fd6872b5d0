#pragma once

#include <string>
#include <vector>

#include "gyre/jobs/drivers/internal/home.h"
#include "gyre/jobs/drivers/node_engine.h"
#include "gyre/jobs/drivers/slurm/driver.h"
#include "gyre/jobs/drivers/slurm/internal/commands.h"

namespace gyre::jobs::drivers::slurm {

/// A request is one job of Slurm, whose script starts `gyre agent` on each of its nodes. Slurm runs only one of those
/// with the same name at a time.
class SlurmEngine final : public NodeEngine {
 public:
  explicit SlurmEngine(const SlurmOptions& options);

  std::string title() const override { return "Slurm"; }
  std::string ask(const NodeRequest& request) override;
  std::vector<Holding> list() override;
  void release(const std::string& id) override { commands_.cancel(id); }
  Capacity capacity() const override;
  std::vector<Artifact> describe(const NodeRequest& request) const override;
  /// Whether Slurm answers, only its queue can say.
  std::vector<Missing> check() override;

 private:
  const SlurmOptions options_;
  const Home home_;
  const Commands commands_;
};

}  // namespace gyre::jobs::drivers::slurm
