#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/gyre/end_signals.h"
#include "apps/gyre/job_view.h"
#include "apps/gyre/remote.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::app {

/// What `gyre job submit` and `gyre run --cluster` have in common: a job is sent to a server, and followed on this
/// console until it ends.
class JobConsole {
 public:
  /// What Ctrl-C, SIGTERM and SIGHUP do from the submission on: they end this program, or also the job.
  enum class OnSignal { kLeaveTheJob, kStopTheJob };

  /// `verb`: how messages begin ("gyre run"). `patience`: for how long a server that is away is asked again.
  JobConsole(std::string verb, const Remote& remote, std::vector<std::string> environment,
             std::chrono::milliseconds patience, OnSignal on_signal);

  jobs::client::Session& session() { return session_; }
  const std::string& workspace() const { return workspace_; }

  /// `experiment` is made if it is missing, and the folder `code` uploaded where it is not empty. Returns the job.
  Json submit(const jobs::resources::JobName& place, const jobs::spec::JobSpec& spec, const std::string& code);

  /// Shows its logs, and says how it ended; returns its exit code. With kStopTheJob a terminal's Ctrl-C asks whether to
  /// stop the job, SIGHUP leaves it running, everything else stops it; the exit code is then 128 + the signal.
  int follow(const jobs::resources::JobName& place);

 private:
  /// Unless the server has it already; returns its SHA-256.
  std::string upload(const std::string& folder);
  int show_until_end(const jobs::resources::JobName& place, JobView& view, const std::function<void()>& meanwhile);

  const std::string verb_;
  const Remote& remote_;
  const std::vector<std::string> environment_;
  const std::chrono::milliseconds patience_;
  const OnSignal on_signal_;
  std::optional<EndSignals> signals_;
  jobs::client::Session session_;
  const std::string workspace_;
};

/// For verbs whose exit code is a job's: where `follow` fails (an Error that is not about the command line) the exit
/// code says that it is none.
int with_a_jobs_exit_code(const std::string& verb, const std::function<int()>& follow);

/// "train-20260102-030405-1f3a": a name that no other submission has. `stem`: any text.
std::string new_job_name(const std::string& stem);
/// What a command is called: its script, else its program.
std::string stem_of(const std::vector<std::string>& command);
/// With a dash for each character that names do not have.
std::string as_job_name(const std::string& text);
/// UsageError where the option's value is not a name that jobs and experiments can have. An empty one was not given.
void check_name(const std::string& name, const char* option);

}  // namespace gyre::app
