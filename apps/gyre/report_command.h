#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::app {

/// `page` (web/built/report.html) with `json` as its data, in which nothing can end its script element. Pure.
std::string report_page(std::string_view page, std::string_view json);

/// `gyre report`: one file of HTML with the metrics of runs.
class ReportCommand {
 public:
  explicit ReportCommand(CLI::App& app);

  /// After the options were parsed. Returns the exit code. gyre::Error.
  int run() const;

 private:
  std::vector<std::string> files_;
  std::string target_;
};

}  // namespace gyre::app
