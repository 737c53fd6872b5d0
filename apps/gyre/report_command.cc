#include "apps/gyre/report_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "apps/gyre/metrics_export.h"
#include "apps/gyre/page_files.h"
#include "apps/gyre/usage_error.h"
#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/rank_file.h"
#include "gyre/cli/output_file.h"
#include "gyre/metrics/series.h"
#include "gyre/page/rank_timeline.h"

namespace gyre::app {

namespace {

constexpr std::string_view kDataMark = "@DATA@";
constexpr int kMostRuns = 20;
/// Of one series: a chart has not many more columns.
constexpr std::size_t kMostPoints = 2'000;
/// Of all series together, unless each would have fewer than kFewestPoints: 10 MB, which a browser opens at once.
constexpr std::size_t kMostPointsOfPage = 300'000;
constexpr std::size_t kFewestPoints = 100;
/// Of the timeline: a few megabytes.
constexpr std::size_t kMostSpansOfPage = 100'000;

}  // namespace

namespace {

/// `runs`: an object, which gets one more member.
std::string with_timeline(std::string runs, const std::string& timeline) {
  if (timeline.empty()) return runs;
  page::JobTimeline ranks(timeline);
  ranks.find_ranks();
  while (ranks.read()) {
  }
  if (ranks.is_empty()) throw Error(ErrorCode::kNotFound, fmt::format("no rank has written a timeline {}", timeline));
  runs.pop_back();
  return runs + ",\"timeline\":" + ranks.json({}, {}, kMostSpansOfPage) + "}";
}

}  // namespace

std::string report_page(std::string_view page, std::string_view json) {
  const std::size_t mark = page.find(kDataMark);
  GYRE_CHECK(mark != std::string_view::npos);
  std::string text(page.substr(0, mark));
  // They are found in strings alone, where a number says the same.
  for (const char letter : json) {
    if (letter == '<' || letter == '>' || letter == '&') {
      text += fmt::format("\\u{:04x}", static_cast<unsigned>(letter));
    } else {
      text += letter;
    }
  }
  return text.append(page.substr(mark + kDataMark.size()));
}

ReportCommand::ReportCommand(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("report", "Write a page with the charts of runs, as one file for a browser");
  verb->add_option("FILE", files_, "What `gyre run --metrics` has written; several are compared")
      ->required()
      ->expected(1, kMostRuns);
  verb->add_option("--to", target_, "Write there (default: standard output)")->type_name("FILE");
  verb->add_option("--timeline", timeline_,
                   "Show those that the ranks have written (gyre run --timeline): TRACE{rank}.json")
      ->type_name("FILES");
  verb->footer(
      "\nExamples:\n  gyre report run.metrics > run.html\n  gyre report first.metrics second.metrics --to both.html");
}

int ReportCommand::run() const {
  if (!timeline_.empty() && !has_rank_mark(timeline_)) {
    throw UsageError(fmt::format("--timeline names the files of all ranks by {} in place of their numbers", kRankMark));
  }
  write_report(files_, target_, timeline_);
  return 0;
}

void write_report(const std::vector<std::string>& files, const std::string& target, const std::string& timeline) {
  std::vector<metrics::Run> runs;
  for (const std::string& file : files) runs.push_back(metrics::load_run(file));
  if (!target.empty()) refuse_own_input(target, files);
  write_report(runs, files, target, timeline);
}

void write_report(const std::vector<metrics::Run>& runs, const std::vector<std::string>& names,
                  const std::string& target, const std::string& timeline) {
  std::size_t series = 0;
  for (const metrics::Run& run : runs) series += run.series.size();
  const std::size_t points =
      std::clamp(kMostPointsOfPage / std::max<std::size_t>(series, 1), kFewestPoints, kMostPoints);
  const std::string page = report_page(built_page(), with_timeline(metrics_report_json(runs, names, points), timeline));
  if (target.empty()) {
    write_all(STDOUT_FILENO, as_bytes(page), "cannot write to standard output");
  } else {
    cli::write_output(target, as_bytes(page));
  }
}

}  // namespace gyre::app
