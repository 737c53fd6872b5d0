#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/metrics/series.h"

namespace gyre::app {

/// `page` (web/built/report.html) with `json` as its data, in which nothing can end its script element. Pure.
std::string report_page(std::string_view page, std::string_view json);

/// Writes the page of the runs whose metrics these files have, to a file or, where `target` is empty, to standard
/// output. gyre::Error.
/// `timeline`: of the ranks (page::JobTimeline); empty: none.
void write_report(const std::vector<std::string>& files, const std::string& target, const std::string& timeline = {});

/// The same of runs, by their names.
void write_report(const std::vector<metrics::Run>& runs, const std::vector<std::string>& names,
                  const std::string& target, const std::string& timeline = {});

/// `gyre report`: one file of HTML with the metrics of runs.
class ReportCommand {
 public:
  explicit ReportCommand(CLI::App& app);

  /// After the options were parsed. Returns the exit code. gyre::Error.
  int run() const;

 private:
  std::vector<std::string> files_;
  std::string target_;
  std::string timeline_;
};

}  // namespace gyre::app
