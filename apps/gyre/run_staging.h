#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/gyre/end_signals.h"
#include "apps/gyre/run_command.h"
#include "gyre/launch/console.h"

namespace gyre::app {

/// `gyre run --stage`: the launcher brings a data set into a folder of this host before it starts the ranks, and
/// removes the folder when they have ended. What a launcher that was killed has left is removed by the next one.
class RunStaging final : public JobStaging {
 public:
  void add_options(CLI::App& verb) override;

  /// Error: UsageError for options of staging without --stage.
  bool is_wanted() const override;

  /// Brings the set, names its folder to the ranks (GYRE_STAGE_DIR, and {stage-dir} in the words of the command), runs
  /// `job`, and removes the folder. Returns what `job` does, or where a signal ended the staging, 128 + its number.
  /// `environment`: with the credentials, which the ranks do not get. UsageError, gyre::Error.
  int around(launch::LaunchOptions& options, const std::vector<std::string>& environment,
             const std::function<int()>& job) const override;

 private:
  class Folder;
  struct Listed;

  Listed list(const std::vector<std::string>& environment) const;
  static void bring(const Listed& listed, const std::filesystem::path& folder, EndSignals& signals, bool verbose,
                    launch::JobWatcher* watcher);
  void tell_ranks(launch::LaunchOptions& options, const std::filesystem::path& folder) const;
  std::vector<std::string> secret_variables() const;

  std::vector<std::string> sources_;
  std::string parent_;
  std::string sas_;
  bool keep_ = false;
  bool decompress_ = false;
  bool keep_credentials_ = false;
};

}  // namespace gyre::app
