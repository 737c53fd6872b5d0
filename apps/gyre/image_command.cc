#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "apps/gyre/job_console.h"
#include "apps/gyre/job_file.h"
#include "apps/gyre/job_place.h"
#include "apps/gyre/remote.h"
#include "apps/gyre/resource_commands.h"
#include "apps/gyre/run_command.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/jobs/resources/json.h"
#include "gyre/jobs/spec/parse.h"

// `gyre image …`.
namespace gyre::app {

namespace {

using Environment = std::vector<std::string>;
using jobs::client::path_of;
using jobs::client::Session;
using jobs::resources::JobName;
using jobs::spec::JobSpec;

constexpr std::chrono::minutes kPatience{1};
constexpr const char* kVerb = "gyre image pull";

constexpr char kExplanation[] = R"(
Fetches the image of a job file, or of a job of the server, to the nodes of a cluster, so that jobs of this image start
at once. It is a small job in a container of the image, which waits for nodes as others do; Ctrl-C leaves it alone.

Examples:
  gyre image pull job.json -c pool
  gyre image pull train-20260102-030405-1f3a)";

struct Pull {
  JobOptions what{};  // FILE or JOB.
  std::string cluster{};
};

/// What a job of the server has, whose password the server alone knows.
JobSpec spec_of_job(Session& session, const JobName& place) {
  const Json job = session.get(path_of(place));
  const Json properties = job.at("properties");
  const Json::json_pointer registry("/containerSettings/imageSourceRegistry");
  if (properties.contains(registry / "credentials")) {
    throw UsageError(fmt::format("the password for the image of {} is known to the server alone; give the job file",
                                 shown_place(place)));
  }
  JobSpec spec;
  spec.cluster_id = text_at(job, "/properties/cluster/id");
  if (!properties.contains(registry)) return spec;
  spec.container_settings.emplace();
  spec.container_settings->image = text_at(job, "/properties/containerSettings/imageSourceRegistry/image");
  const std::string digest = text_at(job, "/properties/containerSettings/imageSourceRegistry/digest");
  if (!digest.empty()) spec.container_settings->image += "@" + digest;
  const std::string server = text_at(job, "/properties/containerSettings/imageSourceRegistry/serverUrl");
  if (!server.empty()) spec.container_settings->server_url = server;
  return spec;
}

JobSpec spec_of_file(const std::string& file, const Environment& environment) {
  return jobs::spec::job_or_throw(jobs::spec::parse_job(read_spec_file(file), spec_file_options(file, environment)),
                                  spec_file_name(file));
}

/// The virtual nodes of a machine have their images together.
int nodes_to_fetch(Session& session, const std::string& workspace, const std::string& cluster) {
  const Json found = session.get({"workspaces", workspace, "clusters", cluster});
  if (text_at(found, "/properties/gyreSettings/driver") == "local") return 1;
  return std::max(1, found.at("properties").value("currentNodeCount", 1));
}

JobSpec job_that_fetches(const jobs::spec::ContainerSettings& image, const std::string& cluster, int nodes) {
  JobSpec job;
  job.cluster_id = cluster;
  job.node_count = nodes;
  job.container_settings = image;
  job.container_settings->read_bashrc = false;
  job.container_settings->shm_size.reset();
  job.container_settings->build.reset();  // What it begins with is fetched.
  job.toolkit = jobs::spec::CustomToolkitSettings{":"};
  job.std_out_err_path_prefix = jobs::spec::kLogsOnTheNode;
  return job;
}

int pull(const Pull& options, const Environment& environment) {
  JobConsole console(kVerb, options.what.remote, environment, kPatience, JobConsole::OnSignal::kLeaveTheJob);
  Session& session = console.session();
  const std::string ending = std::filesystem::path(options.what.job).extension();
  const bool is_file = ending == ".json" || ending == ".yaml" || ending == ".yml" || options.what.job == "-";
  const JobSpec given = is_file ? spec_of_file(options.what.job, environment)
                                : spec_of_job(session, options.what.find(session, environment));
  if (!given.container_settings) {
    throw UsageError(fmt::format("{} has no containerSettings, and so no image", options.what.job));
  }
  if (given.container_settings->image.empty()) {
    throw UsageError(fmt::format("the image of {} is built, by the first job that needs it", options.what.job));
  }
  const std::string cluster = options.cluster.empty() ? given.cluster_id : options.cluster;
  if (cluster.empty()) throw UsageError(fmt::format("{} names no cluster; name one (-c NAME)", options.what.job));
  const JobName place{console.workspace(), kDefaultExperiment, new_job_name("image-pull")};
  const auto begin = SteadyClock::now();
  console.submit(
      place,
      job_that_fetches(*given.container_settings, cluster, nodes_to_fetch(session, console.workspace(), cluster)), "");
  say_why_it_waits(session, place, kVerb);
  const Json ended = follow_events(session, place, [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  const jobs::resources::Job job = jobs::resources::job_from_json(ended);
  if (const int code = jobs::resources::exit_code_of(job); code != 0) {
    fmt::print(stderr, "{}: {}\n", kVerb, cli::printable(jobs::resources::sentence_about_end(job)));
    return code;
  }
  fmt::print("{} is on the nodes of cluster '{}' ({:.1f} s)\n", shown_image(ended), cluster,
             std::chrono::duration<double>(SteadyClock::now() - begin).count());
  return 0;
}

}  // namespace

std::unique_ptr<VerbGroup> image_verbs(CLI::App& app) {
  auto group = std::make_unique<VerbGroup>(app, "image", "Fetch images of containers to the nodes of a cluster",
                                           "  gyre image pull job.json -c pool");
  CLI::App* verb = group->app().add_subcommand("pull", "Fetch the image of a job to the nodes of a cluster");
  auto options = std::make_shared<Pull>();
  options->what.add_options(*verb, Remote::kWorkspace);
  verb->get_option("JOB")->description("A job file, or a job of the server");
  verb->add_option("-c,--cluster", options->cluster, "The cluster (default: the file's, or the job's)")
      ->type_name("NAME");
  verb->footer(kExplanation);
  group->add(verb, [options](const Environment& environment) { return pull(*options, environment); });
  return group;
}

}  // namespace gyre::app
