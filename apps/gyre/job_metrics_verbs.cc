#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

#include "apps/gyre/job_place.h"
#include "apps/gyre/job_top.h"
#include "apps/gyre/job_verbs.h"
#include "apps/gyre/metrics_export.h"
#include "apps/gyre/remote.h"
#include "apps/gyre/report_command.h"
#include "gyre/base/error.h"
#include "gyre/jobs/client/download.h"
#include "gyre/metrics/job_file.h"
#include "gyre/metrics/series.h"

// `gyre job top`, `gyre job report` and `gyre job tensorboard`.
namespace gyre::app {

namespace {

namespace fs = std::filesystem;
using Environment = std::vector<std::string>;
using jobs::client::below;
using jobs::client::path_of;
using jobs::client::Session;
using jobs::resources::JobName;

constexpr const char* kLogs = "stdouterr";

struct MetricsOptions {
  JobOptions job{};
  std::string target{};
  bool once = false;
};

/// A folder that goes when this does.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "gyre-job-metrics-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw system_error("cannot make the folder " + pattern, errno);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Fetches the timelines of the last attempt into a folder: the pattern of their names, or nothing where there are
/// none.
std::string fetch_timelines(Session& session, const JobName& job, const fs::path& folder) {
  std::map<int, std::vector<std::string>> attempts;
  for (const auto& file : list_files(session, job, kLogs, "", false)) {
    if (const auto timeline = metrics::job_timeline_named(file.path)) attempts[timeline->attempt].push_back(file.path);
  }
  if (attempts.empty()) return "";
  const auto& [attempt, names] = *attempts.rbegin();
  for (const std::string& name : names) jobs::client::download(session, job, kLogs, name, folder / name);
  return (folder / metrics::name_of_timelines(attempt)).string();
}

/// One run of all that the launchers of a job have written, attempt by attempt. Error(kNotFound) where there is none.
metrics::Run load_job(Session& session, const JobName& job) {
  std::map<metrics::JobFile, std::string> files;
  for (const auto& file : list_files(session, job, kLogs, "", false)) {
    if (const auto place = metrics::job_file_named(file.path)) files[*place] = file.path;
  }
  if (files.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("job '{0}' has no metrics: they come from ranks that `gyre run` or the job's nodes have "
                            "started; `gyre job files {0}` lists what there is",
                            shown_place(job)));
  }
  const TemporaryFolder folder;
  metrics::Run all;
  all.is_under_way = !session.get(below(path_of(job), "run", "now")).at("over").get<bool>();
  for (const auto& [place, name] : files) {
    jobs::client::download(session, job, kLogs, name, folder.path() / name);
    metrics::Run one = metrics::load_run(folder.path() / name);
    for (auto& [key, value] : one.notes) all.notes[key] = std::move(value);
    for (auto& [key, points] : one.series) {
      auto& series = all.series[key];
      series.insert(series.end(), points.begin(), points.end());
    }
  }
  return all;
}

int report(const MetricsOptions& options, const Environment& environment) {
  Session session = options.job.remote.session(environment, kPatience);
  const JobName job = options.job.find(session, environment);
  const TemporaryFolder folder;
  write_report({load_job(session, job)}, {shown_place(job)}, options.target,
               fetch_timelines(session, job, folder.path()));
  return 0;
}

int export_curves(const MetricsOptions& options, const Environment& environment) {
  Session session = options.job.remote.session(environment, kPatience);
  const JobName job = options.job.find(session, environment);
  export_to_tensorboard(load_job(session, job), options.target);
  return 0;
}

}  // namespace

void add_job_top(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("top", "Watch a job's ranks: steps, waits, processors, memory");
  auto options = std::make_shared<MetricsOptions>();
  options->job.add_options(*verb, Remote::kWorkspace);
  verb->add_flag("--once", options->once, "Print it once, as without a terminal");
  verb->footer(
      "\nThose that need attention come first: failed, lost, late. It ends with the job (exit code 0, however that "
      "ended), or\nwith Ctrl-C. `gyre top JOB` is the same.\n\nExamples:\n  gyre job top train-1");
  group.add(verb, [options](const Environment& environment) {
    return watch_job("gyre job top", options->job, options->once, environment);
  });
}

void add_job_report(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand(
      "report", "Write a page with a job's charts and its timeline, as one file for a browser");
  auto options = std::make_shared<MetricsOptions>();
  options->job.add_options(*verb, Remote::kWorkspace);
  verb->add_option("--to", options->target, "Write there (default: standard output)")->type_name("FILE");
  verb->footer("\nExamples:\n  gyre job report train-1 > train-1.html");
  group.add(verb, [options](const Environment& environment) { return report(*options, environment); });
}

void add_job_tensorboard(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("tensorboard", "Write a job's curves for TensorBoard");
  auto options = std::make_shared<MetricsOptions>();
  options->job.add_options(*verb, Remote::kWorkspace);
  verb->add_option("--to", options->target, "A folder, which gets one for each rank")->type_name("DIR")->required();
  verb->footer(
      "\nAgain later, it replaces what it has written.\n\nExamples:\n  gyre job tensorboard train-1 --to curves\n"
      "  tensorboard --logdir curves");
  group.add(verb, [options](const Environment& environment) { return export_curves(*options, environment); });
}

}  // namespace gyre::app
