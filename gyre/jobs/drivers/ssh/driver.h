#pragma once

#include <memory>

#include "gyre/jobs/drivers/engine_driver.h"
#include "gyre/jobs/drivers/ssh/engine.h"
#include "gyre/jobs/drivers/ssh/options.h"

namespace gyre::jobs::drivers::ssh {

/// A list of hosts behind ssh, on each of which a job can be.
class SshDriver final : public EngineDriver {
 public:
  /// Error(kIo).
  explicit SshDriver(const SshOptions& options) : SshDriver(options, std::make_shared<SshEngine>(options)) {}

  void check_job(const spec::JobSpec& job, const spec::ClusterSpec& /*cluster*/) const override {
    engine_->check_job(job);
  }

 private:
  SshDriver(const SshOptions& options, const std::shared_ptr<SshEngine>& engine)
      : EngineDriver("ssh", options, engine), engine_(engine) {}

  const std::shared_ptr<SshEngine> engine_;
};

}  // namespace gyre::jobs::drivers::ssh
