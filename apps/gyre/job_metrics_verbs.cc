#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include "apps/gyre/job_place.h"
#include "apps/gyre/job_verbs.h"
#include "apps/gyre/metrics_export.h"
#include "apps/gyre/remote.h"
#include "apps/gyre/report_command.h"
#include "gyre/base/error.h"
#include "gyre/cli/live_block.h"
#include "gyre/cli/table.h"
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

constexpr std::chrono::seconds kBetweenLooks{2};
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

std::string number(const Json& value, const char* format) {
  return value.is_number() ? fmt::format(fmt::runtime(format), value.get<double>()) : std::string();
}

std::string screen_of(const Json& job) {
  cli::Table table({"RANK", "STATE", "STEP", "STEPS/S", "WAITS", "CORES", "MEMORY", "DETAIL"});
  for (const Json& rank : job.at("ranks")) {
    const Json& waits = rank.at("waiting");
    const Json& memory = rank.at("memory_bytes");
    table.add({std::to_string(rank.at("rank").get<int>()), rank.at("phase"), number(rank.at("step"), "{:.0f}"),
               number(rank.at("steps_per_second"), "{:.3g}"),
               waits.is_number() ? fmt::format("{:.0f} %", 100 * waits.get<double>()) : std::string(),
               number(rank.at("cpu_cores"), "{:.2f}"),
               memory.is_number() ? cli::shown_bytes(static_cast<std::uint64_t>(memory.get<double>())) : std::string(),
               cli::printable(rank.at("detail").get<std::string>())});
  }
  const std::string state = job.at("state");
  return fmt::format("{}, {} ranks, {}\n{}", cli::printable(job.at("name").get<std::string>()), job.at("ranks").size(),
                     state, table.empty() ? "no ranks were heard of\n" : table.text());
}

std::vector<cli::BlockLine> lines_of(const std::string& text) {
  std::vector<cli::BlockLine> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back({.text = text.substr(at, end - at)});
    at = end + 1;
  }
  return lines;
}

int watch_ranks(const MetricsOptions& options, const Environment& environment) {
  Session session = options.job.remote.session(environment, kPatience);
  const JobName job = options.job.find(session, environment);
  const auto look = [&] { return session.get(below(path_of(job), "run", "now")); };
  const cli::LiveOptions live = cli::live_options_from_environment();
  Json now = look();
  {
    cli::LiveBlock block(live);
    for (; live.draws && !options.once && !now.at("over"); now = look()) {
      block.show(lines_of(screen_of(now.at("job"))));
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  write_out(screen_of(now.at("job")));
  return 0;
}

}  // namespace

void add_job_top(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("top", "Watch a job's ranks: steps, waits, processors, memory");
  auto options = std::make_shared<MetricsOptions>();
  options->job.add_options(*verb, Remote::kWorkspace);
  verb->add_flag("--once", options->once, "Print it once, as without a terminal");
  verb->footer(
      "\nThose that need attention come first: failed, lost, late. It ends with the job, or with "
      "Ctrl-C.\n\nExamples:\n  gyre job top train-1");
  group.add(verb, [options](const Environment& environment) { return watch_ranks(*options, environment); });
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
