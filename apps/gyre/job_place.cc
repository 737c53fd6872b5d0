#include "apps/gyre/job_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <functional>

#include "apps/gyre/run_command.h"
#include "gyre/base/error.h"
#include "gyre/cli/suggest.h"
#include "gyre/jobs/client/job_status.h"
#include "gyre/jobs/resources/json.h"

namespace gyre::app {

namespace {

using jobs::client::below;
using jobs::client::path_of;
using jobs::client::Session;
using jobs::resources::Explanation;
using jobs::resources::JobName;

/// Of these, the newest, a name that was not found is looked for, and a similar one suggested.
constexpr std::size_t kMostLookedThrough = 1'000;

[[noreturn]] void throw_not_found(const std::string& name, const std::string& workspace,
                                  const std::vector<std::string>& known) {
  const auto meant = cli::nearest(name, known);
  throw Error(ErrorCode::kNotFound, fmt::format("there is no job '{}' in workspace '{}'{}", name, workspace,
                                                meant ? fmt::format("; did you mean '{}'?", *meant) : ""));
}

}  // namespace

void JobOptions::add_options(CLI::App& verb, unsigned options) {
  verb.add_option("JOB", job, "The job's name, or EXPERIMENT/NAME")->required();
  verb.add_option("-e,--experiment", experiment, "Its experiment (default: found by the name)")->type_name("NAME");
  remote.add_options(verb, options);
}

JobName JobOptions::find(Session& session, const std::vector<std::string>& environment) const {
  JobName place{remote.workspace_in(environment), experiment, job};
  const std::size_t slash = job.find('/');
  if (job.empty() || slash == 0 || slash + 1 == job.size() || slash != job.rfind('/')) {
    throw UsageError(fmt::format("'{}' names no job; JOB or EXPERIMENT/JOB is needed", cli::printable(job)));
  }
  if (slash != std::string::npos) {
    if (!experiment.empty()) throw UsageError(fmt::format("-e and '{}' both name an experiment", job));
    place.experiment = job.substr(0, slash);
    place.job = job.substr(slash + 1);
  }
  const bool searches = place.experiment.empty();
  if (searches) place.experiment = kDefaultExperiment;
  if (session.exists(path_of(place))) return place;
  // In all of the workspace; if that does not exist either, this says so.
  std::vector<std::string> experiments;
  std::vector<std::string> known;
  for (const Json& other : session.list({"workspaces", place.workspace, "jobs"},
                                        {{"order", "newest"}, {"maxresults", "1000"}}, kMostLookedThrough)) {
    const JobName found{place.workspace, experiment_of(other), text_at(other, "/name")};
    if (found.job == place.job) experiments.push_back(found.experiment);
    known.push_back(shown_place(found));
  }
  if (!searches || experiments.empty()) throw_not_found(shown_place(place), place.workspace, known);
  if (experiments.size() > 1) {
    throw UsageError(fmt::format("several experiments have a job '{}': {}; name one with -e", place.job,
                                 fmt::join(experiments, ", ")));
  }
  place.experiment = experiments.front();
  return place;
}

std::string shown_place(const JobName& job) {
  return job.experiment == kDefaultExperiment ? job.job : job.experiment + "/" + job.job;
}

std::string experiment_of(const Json& job) {
  const std::string id = text_at(job, "/id");
  const std::string before = "/experiments/";
  const std::size_t begin = id.find(before);
  if (begin == std::string::npos) return "";
  const std::size_t name = begin + before.size();
  return id.substr(name, id.find('/', name) - name);
}

bool has_ended(const Json& job) {
  const std::string state = text_at(job, "/properties/executionState");
  return state == "succeeded" || state == "failed";
}

std::string shown_image(const Json& job) {
  const std::string registry = "/properties/containerSettings/imageSourceRegistry";
  const std::string server = text_at(job, registry + "/serverUrl");
  const std::string digest = text_at(job, registry + "/digest");
  const std::string image = text_at(job, registry + "/image");
  const Json::json_pointer build("/properties/containerSettings/build");
  if (image.empty() && job.contains(build)) {
    return "built from " + text_at(job, "/properties/containerSettings/build/dockerfile");
  }
  return fmt::format("{}{}{}{}{}{}", server, server.empty() ? "" : "/", image, digest.empty() ? "" : "@", digest,
                     job.contains(build) ? ", with its requirements" : "");
}

Json follow_events(Session& session, const JobName& job, const std::function<void(const std::string&)>& say) {
  session.events(below(path_of(job), "events"), [&](const net::http::ServerEvent& server_event) {
    const Json event = Json::parse(server_event.data, nullptr, false);
    if (!event.is_object()) return true;
    const auto sentence = jobs::client::sentence_about(jobs::resources::event_from_json(event));
    if (sentence) say(fmt::format("{}  {}", shown_time(text_at(event, "/time")), cli::printable(*sentence)));
    return true;
  });
  return session.get(path_of(job));
}

std::vector<std::string> notes_of(Session& session, const JobName& job) {
  std::vector<std::string> notes;
  for (const Json& event : session.list(below(path_of(job), "events"))) {
    if (text_at(event, "/reason") == "note") notes.push_back(cli::printable(text_at(event, "/message")));
  }
  return notes;
}

namespace {

void say_why(Session& session, const JobName& job, const std::string& verb,
             const std::function<bool(const Explanation&)>& concerns) {
  const Explanation why = jobs::resources::explanation_from_json(session.get(below(path_of(job), "why")));
  if (!concerns(why)) return;
  // It may have started while it was asked about; what was said before is about waiting.
  if (text_at(session.get(path_of(job)), "/properties/executionState") != "queued") return;
  fmt::print(stderr, "{}: {} waits: {}\n", verb, shown_place(job), cli::printable(why.message));
}

}  // namespace

void say_why_it_waits(Session& session, const JobName& job, const std::string& verb) {
  say_why(session, job, verb, [](const Explanation& why) { return why.reason != "startsNow"; });
}

void say_what_must_change(Session& session, const JobName& job, const std::string& verb) {
  say_why(session, job, verb, jobs::client::must_change_something);
}

std::string sentence_about_attempt(Session& session, const JobName& job, int attempt) {
  std::string why;
  for (const Json& event : session.list(below(path_of(job), "events"))) {
    if (text_at(event, "/to") == "queued") why = text_at(event, "/message");
  }
  return fmt::format("{} begins again, and its output with it (attempt {}){}{}", shown_place(job), attempt,
                     why.empty() ? "" : ": ", cli::printable(why));
}

void show_log(jobs::client::LogStream stream, std::string_view text) {
  if (stream == jobs::client::LogStream::kOut) return write_out(text);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace gyre::app
