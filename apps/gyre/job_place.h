#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/gyre/remote.h"
#include "gyre/jobs/client/log_lines.h"

namespace gyre::app {

/// A job that exists, as a verb's JOB names it: NAME, or EXPERIMENT/NAME.
struct JobOptions {
  Remote remote{};
  std::string job{};
  std::string experiment{};

  /// JOB, -e, and those of Remote.
  void add_options(CLI::App& verb, unsigned options = Remote::kWorkspace | Remote::kOutput);
  /// A NAME alone is looked for in the experiment `default`, then in all of the workspace. Error(kNotFound) with the
  /// name that was probably meant; Error(kInvalidArgument) where several experiments have such a job.
  jobs::client::JobPlace find(jobs::client::Session& session, const std::vector<std::string>& environment) const;
};

/// How verbs write it: NAME in the experiment `default`, else EXPERIMENT/NAME.
std::string shown_place(const jobs::client::JobPlace& job);
/// The experiment of a job, by its id.
std::string experiment_of(const Json& job);

/// What verbs that end with the job's exit code end with where the fault is not the job's.
inline constexpr int kNotTheJobsExitCode = 125;

/// A finished job's: 0 for success, never 0 for failure.
int exit_code_of(const Json& job);
bool has_ended(const Json& job);
/// "job 'x' failed with exit code 7: JobFailed: …", or that it succeeded.
std::string shown_end(const Json& job);

/// Hands on what happens to a job, a line each, until it has ended; returns it. Across restarts of the server.
Json follow_events(jobs::client::Session& session, const jobs::client::JobPlace& job,
                   const std::function<void(const std::string&)>& say);
/// What the nodes have remarked about it so far: printable sentences.
std::vector<std::string> notes_of(jobs::client::Session& session, const jobs::client::JobPlace& job);
/// Where it waits: one line on stderr that says why.
void say_why_it_waits(jobs::client::Session& session, const jobs::client::JobPlace& job, const std::string& verb);
/// The same, where it waits for something that somebody has to change.
void say_what_must_change(jobs::client::Session& session, const jobs::client::JobPlace& job, const std::string& verb);
/// Writes a job's logs to stdout and stderr. For LogTail.
void show_log(jobs::client::LogStream stream, std::string_view text);

}  // namespace gyre::app
