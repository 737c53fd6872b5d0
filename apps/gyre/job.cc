#include "apps/gyre/job.h"

#include "apps/gyre/job_console.h"
#include "apps/gyre/job_verbs.h"

namespace gyre::app {

JobCommand::JobCommand(CLI::App& app)
    : group_(app, "job", "Check job files, run them here, submit jobs to a server and follow them",
             "  gyre job run job.json --mount external=/data/share\n"
             "  gyre job submit job.json --follow\n"
             "  gyre job submit --nodes 2 --processes 4 -- python train.py\n"
             "  gyre job why train-1\n"
             "  gyre job validate --help"),
      run_(group_.app()),
      validate_(group_.app()),
      submit_(group_),
      shell_(group_) {
  group_.add(run_.verb(), [this](const std::vector<std::string>& environment) {
    return with_a_jobs_exit_code("gyre job run", [&] { return run_.run(environment); });
  });
  group_.add(validate_.verb(),
             [this](const std::vector<std::string>& environment) { return validate_.run(environment); });
  add_job_list(group_);
  add_job_show(group_);
  add_job_why(group_);
  add_job_events(group_);
  add_job_wait(group_);
  add_job_logs(group_);
  add_job_files(group_);
  add_job_download(group_);
  add_job_forward(group_);
  add_job_top(group_);
  add_job_report(group_);
  add_job_tensorboard(group_);
  add_job_stop(group_);
  add_job_retry(group_);
  add_job_delete(group_);
}

}  // namespace gyre::app
