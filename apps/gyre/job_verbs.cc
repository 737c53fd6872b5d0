#include "apps/gyre/job_verbs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>

#include "apps/gyre/job_place.h"
#include "apps/gyre/job_view.h"
#include "apps/gyre/remote.h"
#include "apps/gyre/run_command.h"
#include "gyre/base/error.h"
#include "gyre/cli/number_check.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/jobs/resources/json.h"

namespace gyre::app {

namespace {

using Environment = std::vector<std::string>;
using jobs::client::below;
using jobs::client::Path;
using jobs::client::path_of;
using jobs::client::Query;
using jobs::client::Session;
using jobs::resources::JobName;

constexpr std::chrono::seconds kLongestDeletion{120};

struct ListOptions {
  Remote remote{};
  std::string experiment{};
  std::string cluster{};
  std::string state{};
  std::size_t limit = 100;
};

/// From its start to its end; empty while it waits.
std::string shown_run_time(const Json& job) {
  const std::string start = text_at(job, "/properties/executionInfo/startTime");
  const std::string end = text_at(job, "/properties/executionInfo/endTime");
  if (!end.empty() || !has_ended(job)) return shown_duration(start, end);
  return "";
}

std::string job_table(const std::vector<Json>& jobs) {
  const auto name = [](const Json& job) { return shown_place({"", experiment_of(job), text_at(job, "/name")}); };
  return table_of(jobs, {{"JOB", name},
                         column("STATE", "/properties/executionState"),
                         column("NODES", "/properties/nodeCount"),
                         column("CLUSTER", "/properties/cluster/id"),
                         time_column("SUBMITTED", "/properties/creationTime"),
                         {"RAN", shown_run_time},
                         column("ATTEMPTS", "/gyre/attempts"),
                         column("EXIT", "/properties/executionInfo/exitCode")});
}

std::string event_table(const std::vector<Json>& events) {
  const auto what = [](const Json& event) {
    const std::string attempt = text_at(event, "/attempt");
    const std::string subject = text_at(event, "/subject");
    return attempt.empty() ? subject : fmt::format("{} {}", subject, attempt);
  };
  return table_of(events, {time_column("TIME", "/time"),
                           {"WHAT", what},
                           column("TO", "/to"),
                           column("REASON", "/reason"),
                           column("MESSAGE", "/message")});
}

/// Of a job that waits after a failure that was not its own.
std::string shown_retry(const Json& job) {
  const std::string time = text_at(job, "/gyre/retryTime");
  return time.empty() ? "" : "not before " + shown_time(time);
}

std::string job_fields(const Json& job, const std::vector<std::string>& notes) {
  const auto property = [&](const char* name) { return text_at(job, fmt::format("/properties/{}", name)); };
  std::vector<std::pair<std::string, std::string>> fields = {
      {"job", shown_place({"", experiment_of(job), text_at(job, "/name")})},
      {"state", property("executionState")},
      {"cluster", property("cluster/id")},
      {"nodes", property("nodeCount")},
      {"image", shown_image(job)},
      {"toolkit", property("toolType")},
      {"priority", property("schedulingPriority")},
      {"submitted", shown_time(property("creationTime"))},
      {"started", shown_time(property("executionInfo/startTime"))},
      {"ended", shown_time(property("executionInfo/endTime"))},
      {"ran", shown_run_time(job)},
      {"attempts", text_at(job, "/gyre/attempts")},
      {"next attempt", shown_retry(job)},
      {"exit code", property("executionInfo/exitCode")},
      {"logs", property("stdOutErrPathPrefix")},
      {"segment", property("jobOutputDirectoryPathSegment")}};
  for (const Json& output : job.at("properties").value("outputDirectories", Json::array())) {
    fields.emplace_back("output", fmt::format("{} = {}", text_at(output, "/id"), text_at(output, "/pathPrefix")));
  }
  for (const Json& error : job.at("properties").at("executionInfo").value("errors", Json::array())) {
    fields.emplace_back("error", fmt::format("{}: {}", text_at(error, "/code"), text_at(error, "/message")));
  }
  for (const std::string& note : notes) fields.emplace_back("note", note);
  return shown_fields(fields);
}

std::shared_ptr<JobOptions> add_job(CLI::App& verb, unsigned options = Remote::kWorkspace | Remote::kOutput) {
  auto job = std::make_shared<JobOptions>();
  job->add_options(verb, options);
  return job;
}

constexpr char kForceExplanation[] = R"(
A job is ended on its nodes first. If its cluster cannot be used (its driver does not answer, or its shared folder is
missing: `gyre cluster show`), that waits until it can. --force does not wait; it says what may be left behind:
processes that go on and write to the job's outputs.)";

std::shared_ptr<bool> add_force(CLI::App& verb) {
  auto force = std::make_shared<bool>(false);
  verb.add_flag("--force", *force, "End its record without its nodes, if its cluster cannot be used");
  return force;
}

/// With `force`, says what may be left behind.
Json stop(Session& session, const JobName& job, bool force, const std::string& verb) {
  const Json stopped = session.post(below(path_of(job), "terminate"), force ? Query{{"force", "true"}} : Query{});
  if (!force) return stopped;
  for (const Json& error : stopped.value(Json::json_pointer("/properties/executionInfo/errors"), Json::array())) {
    fmt::print(stderr, "{}: {}\n", verb, cli::printable(text_at(error, "/message")));
  }
  return stopped;
}

constexpr std::size_t kLastLines = 20;
constexpr std::size_t kMostLastBytes = 8 << 10;

/// On stderr, of what a failed job has said last: of stderr.txt, or where that is empty of stdout.txt.
void show_last_lines(Session& session, const JobName& job) {
  for (const char* file : {"stderr.txt", "stdout.txt"}) {
    const Path path = below(path_of(job), "files", "stdouterr", file);
    std::string text;
    try {
      for (const Json& listed : session.list(below(path_of(job), "files"), {{"outputdirectoryid", "stdouterr"}})) {
        const auto size = listed.value(Json::json_pointer("/properties/contentLength"), std::uint64_t{0});
        if (text_at(listed, "/name") != file || size == 0) continue;
        text = session.read(path, size - std::min<std::uint64_t>(size, kMostLastBytes), kMostLastBytes).bytes;
      }
    } catch (const Error&) {
      continue;  // It has no logs, or they are on a node that is gone.
    }
    if (text.empty()) continue;
    fmt::print(stderr, "gyre job wait: the last lines of {} (`gyre job logs {}` shows all):\n", file, shown_place(job));
    std::istringstream all{std::string(jobs::client::last_lines(text, kLastLines))};
    for (std::string line; std::getline(all, line);) fmt::print(stderr, "  {}\n", cli::printable(line));
    return;
  }
}

int wait_for_job(const JobOptions& options, bool quiet, const Environment& environment) {
  const std::string where = "gyre job wait";
  JobView view(cli::live_options_from_environment(), where);
  try {
    Session session = options.remote.session(
        environment, kPatience, [&] { view.tick(); }, [&](const std::string& line) { view.say(line); });
    const JobName place = options.find(session, environment);
    if (!quiet && view.draws()) view.watch(shown_place(place), look_at(options.remote, environment, place));
    const Json job = follow_events(session, place, [&](const std::string& line) {
      if (!quiet) view.say(where + ": " + line);
    });
    view.end();
    if (options.remote.output != "table") options.remote.print(job, [] { return ""; });
    const jobs::resources::Job ended = jobs::resources::job_from_json(job);
    const int code = exit_code_of(ended);
    if (!quiet) fmt::print(stderr, "{}: {}\n", where, cli::printable(sentence_about_end(ended)));
    if (!quiet && code != 0) show_last_lines(session, place);
    return code;
  } catch (const Error& error) {
    view.end();
    fmt::print(stderr, "{}: {}\n", where, error.what());
    return jobs::resources::kNotTheJobsExitCode;
  }
}

}  // namespace

void add_job_list(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("list", "List the jobs of a workspace, the newest first");
  auto options = std::make_shared<ListOptions>();
  verb->add_option("-e,--experiment", options->experiment, "Only jobs of this experiment")->type_name("NAME");
  verb->add_option("-c,--cluster", options->cluster, "Only jobs of this cluster")->type_name("NAME");
  verb->add_option("--state", options->state, "Only jobs in this state")
      ->check(CLI::IsMember({"queued", "running", "terminating", "succeeded", "failed"}))
      ->type_name("STATE");
  verb->add_option("--limit", options->limit, "Maximum number of jobs")
      ->type_name("N")
      ->check(cli::whole_number_from(1))
      ->capture_default_str();
  options->remote.add_options(*verb);
  group.add(verb, [options](const Environment& environment) {
    Session session = options->remote.session(environment);
    Query query = {{"order", "newest"},
                   {"maxresults", fmt::format("{}", std::min<std::size_t>(options->limit, 1'000))}};
    const auto narrow = [&](const char* by, const std::string& value) {
      if (!value.empty()) query.emplace_back(by, value);
    };
    narrow("experiment", options->experiment);
    narrow("cluster", options->cluster);
    narrow("state", options->state);
    bool more = false;
    const auto jobs =
        session.list({"workspaces", options->remote.workspace_in(environment), "jobs"}, query, options->limit, &more);
    options->remote.print(jobs, [&] { return job_table(jobs); });
    if (more) fmt::print(stderr, "gyre job list: there are older jobs; --limit shows more than {}\n", options->limit);
    return 0;
  });
}

void add_job_show(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("show", "Show a job");
  auto options = add_job(*verb);
  group.add(verb, [options](const Environment& environment) {
    Session session = options->remote.session(environment);
    const JobName place = options->find(session, environment);
    const Json job = session.get(path_of(place));
    options->remote.print(job, [&] { return job_fields(job, notes_of(session, place)); });
    return 0;
  });
}

void add_job_why(VerbGroup& group) {
  CLI::App* verb =
      group.app().add_subcommand("why", "Explain why a job waits and what would start it, or why it failed");
  auto options = add_job(*verb);
  group.add(verb, [options](const Environment& environment) {
    Session session = options->remote.session(environment);
    const JobName job = options->find(session, environment);
    const Json why = session.get(below(path_of(job), "why"));
    options->remote.print(why, [&] {
      std::string text = fmt::format("{}: {}\n", text_at(why, "/reason"), cli::printable(text_at(why, "/message")));
      const bool said = text.find("would start at once") != std::string::npos;
      for (const Json& remedy : said ? Json::array() : why.value("remedies", Json::array())) {
        text += fmt::format("  {}\n", cli::printable(remedy.get<std::string>()));
      }
      const std::string start = text_at(why, "/expectedStart");
      if (!start.empty()) text += fmt::format("  it starts at {} at the latest\n", shown_time(start));
      return text;
    });
    return 0;
  });
}

void add_job_events(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("events", "List the events of a job");
  auto options = add_job(*verb);
  group.add(verb, [options](const Environment& environment) {
    Session session = options->remote.session(environment);
    const auto events = session.list(below(path_of(options->find(session, environment)), "events"));
    options->remote.print(events, [&] { return event_table(events); });
    return 0;
  });
}

void add_job_wait(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("wait", "Wait until a job has ended, and exit with its exit code");
  auto options = add_job(*verb);
  auto quiet = std::make_shared<bool>(false);
  verb->add_flag("-q,--quiet", *quiet, "Do not show progress");
  verb->footer(
      "\nAcross restarts of the server. Exit code: the job's; 125 if the job is not at fault: it does not exist, or "
      "the\nserver cannot be reached for five minutes.\n\nExamples:\n  gyre job wait train-1 && gyre job download "
      "train-1 -d MODEL");
  group.add(verb,
            [options, quiet](const Environment& environment) { return wait_for_job(*options, *quiet, environment); });
}

void add_job_stop(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("stop", "Stop a waiting or running job, which then counts as failed");
  auto options = add_job(*verb);
  auto force = add_force(*verb);
  verb->footer(kForceExplanation);
  group.add(verb, [options, force](const Environment& environment) {
    Session session = options->remote.session(environment);
    const Json job = stop(session, options->find(session, environment), *force, "gyre job stop");
    options->remote.print(job, [&] { return job_table({job}); });
    return 0;
  });
}

void add_job_retry(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("retry", "Queue a job again that has failed, as it was submitted");
  auto options = add_job(*verb);
  verb->footer(
      "\nIts next attempt has a number of its own and writes to the same places. A job with secrets is submitted again "
      "instead:\nthey were deleted when it ended.\n\nExamples:\n  gyre job retry train-1 && gyre job wait train-1");
  group.add(verb, [options](const Environment& environment) {
    Session session = options->remote.session(environment);
    const Json job = session.post(below(path_of(options->find(session, environment)), "retry"));
    options->remote.print(job, [&] { return job_table({job}); });
    return 0;
  });
}

void add_job_delete(VerbGroup& group) {
  CLI::App* verb =
      group.app().add_subcommand("delete", "Stop a job if necessary, and delete its record; its files stay");
  auto options = add_job(*verb, Remote::kWorkspace);
  auto yes = std::make_shared<bool>(false);
  auto no_wait = std::make_shared<bool>(false);
  verb->add_flag("-y,--yes", *yes, "Do not ask for confirmation");
  verb->add_flag("--no-wait", *no_wait, "Do not wait until it is deleted");
  auto force = add_force(*verb);
  verb->footer(kForceExplanation);
  group.add(verb, [options, yes, no_wait, force](const Environment& environment) {
    Session session = options->remote.session(environment);
    const JobName job = options->find(session, environment);
    const std::string what = fmt::format("job '{}'", shown_place(job));
    if (!confirmed(fmt::format("Delete {}?", what), *yes)) return 1;
    if (*force && !has_ended(session.get(path_of(job)))) stop(session, job, true, "gyre job delete");
    session.remove(path_of(job));
    if (!*no_wait) wait_until_gone(session, path_of(job), kLongestDeletion, what);
    return 0;
  });
}

}  // namespace gyre::app
