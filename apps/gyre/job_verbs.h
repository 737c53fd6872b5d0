#pragma once

#include "apps/gyre/verb_group.h"

namespace gyre::app {

// The verbs of `gyre job` that look at jobs of a server, or end them.
void add_job_list(VerbGroup& group);
void add_job_show(VerbGroup& group);
void add_job_why(VerbGroup& group);
void add_job_events(VerbGroup& group);
void add_job_wait(VerbGroup& group);
void add_job_stop(VerbGroup& group);
void add_job_retry(VerbGroup& group);
void add_job_delete(VerbGroup& group);
// Those about their files.
void add_job_logs(VerbGroup& group);
void add_job_files(VerbGroup& group);
void add_job_download(VerbGroup& group);
// Those that reach the nodes of jobs that run.
void add_job_forward(VerbGroup& group);
// Those about their metrics.
void add_job_top(VerbGroup& group);
void add_job_report(VerbGroup& group);
void add_job_tensorboard(VerbGroup& group);

}  // namespace gyre::app
