#include "apps/gyre/metrics_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apps/gyre/metrics_export.h"
#include "apps/gyre/usage_error.h"
#include "gyre/base/bytes.h"
#include "gyre/base/file.h"
#include "gyre/cli/number_check.h"
#include "gyre/cli/output_file.h"
#include "gyre/metrics/prometheus.h"
#include "gyre/metrics/series.h"

namespace gyre::app {

namespace {

constexpr int kMostComparedRuns = 20;

metrics::Run load(const std::string& file) {
  metrics::Run run = metrics::load_run(file);
  if (run.unreadable_bytes > 0) {
    fmt::print(stderr, "gyre metrics: the last {} bytes of {} are cut off or damaged; this is what comes before them\n",
               run.unreadable_bytes, file);
  }
  return run;
}

void print(std::string_view text) { write_all(STDOUT_FILENO, as_bytes(text), "cannot write to standard output"); }

struct ExportOptions {
  std::string file;
  std::string format = "csv";
  std::string target;
  std::uint32_t most_points = 0;

  void add_options(CLI::App& verb) {
    verb.add_option("FILE", file, "What `gyre run --metrics` has written")->required();
    verb.add_option("--format", format, "csv (default), json, prometheus or tensorboard")
        ->check(CLI::IsMember({"csv", "json", "prometheus", "tensorboard"}))
        ->type_name("FORMAT");
    verb.add_option("--to", target, "Write there; for tensorboard a folder (default: standard output)")
        ->type_name("PATH");
    verb.add_option("--points", most_points,
                    "With json: the lowest and the highest values of each series, at most so many (default: all)")
        ->check(cli::whole_number_from(4))
        ->type_name("N");
    verb.footer(
        "\nExamples:\n  gyre metrics export run.metrics > run.csv\n"
        "  gyre metrics export run.metrics --format tensorboard --to curves");
  }
};

int export_file(const ExportOptions& options) {
  if (options.most_points > 0 && options.format != "json") throw UsageError("--points is for --format json");
  if (options.format == "tensorboard" && options.target.empty()) {
    throw UsageError("--format tensorboard needs --to, a folder");
  }
  const metrics::Run run = load(options.file);
  if (options.format == "tensorboard") {
    export_to_tensorboard(run, options.target);
    return 0;
  }
  const std::string text = options.format == "csv"    ? metrics_csv(run)
                           : options.format == "json" ? metrics_json(run, options.most_points)
                                                      : metrics::prometheus_text(run);
  if (options.target.empty()) {
    print(text);
  } else {
    refuse_own_input(options.target, {options.file});
    cli::write_output(options.target, as_bytes(text));
  }
  return 0;
}

int compare(const std::vector<std::string>& files) {
  std::vector<metrics::Run> runs;
  for (const std::string& file : files) runs.push_back(load(file));
  print(metrics_comparison(runs, files));
  return 0;
}

}  // namespace

std::unique_ptr<VerbGroup> metrics_verbs(CLI::App& app) {
  auto group = std::make_unique<VerbGroup>(app, "metrics", "Look at what the ranks of a run have logged",
                                           "  gyre metrics show run.metrics\n"
                                           "  gyre metrics compare first.metrics second.metrics\n"
                                           "  gyre metrics export run.metrics --format tensorboard --to curves");
  CLI::App* show = group->app().add_subcommand("show", "Show the run and its series");
  auto file = std::make_shared<std::string>();
  show->add_option("FILE", *file, "What `gyre run --metrics` has written")->required();
  show->footer("\nExamples:\n  gyre metrics show run.metrics");
  group->add(show, [file](const std::vector<std::string>&) {
    print(metrics_summary(load(*file)));
    return 0;
  });

  CLI::App* comparison = group->app().add_subcommand("compare", "Show how runs differ, and where their series end");
  auto files = std::make_shared<std::vector<std::string>>();
  comparison->add_option("FILE", *files, "What `gyre run --metrics` has written")
      ->required()
      ->expected(2, kMostComparedRuns);
  comparison->footer("\nExamples:\n  gyre metrics compare first.metrics second.metrics");
  group->add(comparison, [files](const std::vector<std::string>&) { return compare(*files); });

  CLI::App* exporter = group->app().add_subcommand("export", "Write the values for other programs");
  auto options = std::make_shared<ExportOptions>();
  options->add_options(*exporter);
  group->add(exporter, [options](const std::vector<std::string>&) { return export_file(*options); });
  return group;
}

}  // namespace gyre::app
