#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gyre/jobs/drivers/node_engine.h"
#include "gyre/jobs/drivers/ssh/options.h"

namespace gyre::jobs::drivers::ssh {

/// A list of hosts, each of which is a node of one attempt at a time. The table of who has which is ours, in the
/// attempts' parts of the service's folder. One ssh for each node starts its agent, which runs detached from it, and
/// looks on until the agent has ended; one that is cut off is started again. A host that is not reached for as long as
/// an agent lives without the service has none any more.
class SshEngine final : public NodeEngine {
 public:
  /// Takes up what a service before us has begun. Error(kIo).
  explicit SshEngine(const SshOptions& options);
  ~SshEngine() override;

  std::string title() const override { return "ssh"; }
  bool shows_ids() const override { return false; }
  std::string ask(const NodeRequest& request) override;
  std::vector<Holding> list() override;
  void release(const std::string& id) override;
  Capacity capacity() const override;
  std::vector<Artifact> describe(const NodeRequest& request) const override;
  /// Logs in to every host. What these say of their sizes is kept for check_job() and ask().
  std::vector<Missing> check() override;
  /// Hosts that cannot be logged in to. Requests get others in their places where enough are free.
  std::vector<std::string> node_problems() const override;
  /// Error(kResourceExhausted) where too few hosts have the cores and the memory. Thread-safe.
  void check_job(const spec::JobSpec& job);

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace gyre::jobs::drivers::ssh
