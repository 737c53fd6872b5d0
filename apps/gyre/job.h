#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/gyre/job_run.h"
#include "apps/gyre/job_shell.h"
#include "apps/gyre/job_submit.h"
#include "apps/gyre/job_validate.h"
#include "apps/gyre/verb_group.h"

namespace gyre::app {

/// The verbs `gyre job …`; those of this machine stand in files of their own.
class JobCommand {
 public:
  explicit JobCommand(CLI::App& app);
  JobCommand(const JobCommand&) = delete;
  JobCommand& operator=(const JobCommand&) = delete;

  VerbGroup& group() { return group_; }
  JobSubmit& submit() { return submit_; }
  JobShell& shell() { return shell_; }

 private:
  VerbGroup group_;
  JobRun run_;
  JobValidate validate_;
  JobSubmit submit_;
  JobShell shell_;
};

}  // namespace gyre::app
