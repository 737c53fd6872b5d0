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
  jobs::resources::JobName find(jobs::client::Session& session, const std::vector<std::string>& environment) const;
};

/// How verbs write it: NAME in the experiment `default`, else EXPERIMENT/NAME.
std::string shown_place(const jobs::resources::JobName& job);
/// The experiment of a job, by its id.
std::string experiment_of(const Json& job);

/// The image of its container, with its registry and its digest where these are known; empty without a container.
std::string shown_image(const Json& job);

bool has_ended(const Json& job);
/// Hands on what happens to a job, a line each, until it has ended; returns it. Across restarts of the server.
Json follow_events(jobs::client::Session& session, const jobs::resources::JobName& job,
                   const std::function<void(const std::string&)>& say);
/// What the nodes have remarked about it so far: printable sentences.
std::vector<std::string> notes_of(jobs::client::Session& session, const jobs::resources::JobName& job);
/// Where it waits: one line on stderr that says why.
void say_why_it_waits(jobs::client::Session& session, const jobs::resources::JobName& job, const std::string& verb);
/// The same, where it waits for something that somebody has to change.
void say_what_must_change(jobs::client::Session& session, const jobs::resources::JobName& job, const std::string& verb);
/// That it begins again, and why. For LogTail.
std::string sentence_about_attempt(jobs::client::Session& session, const jobs::resources::JobName& job, int attempt);
/// Writes a job's logs to stdout and stderr. For LogTail.
void show_log(jobs::client::LogStream stream, std::string_view text);

}  // namespace gyre::app
