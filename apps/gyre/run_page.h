#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/gyre/run_command.h"

namespace gyre::app {

/// The options --page, --page-port and --compare of `gyre run`.
class RunPage final : public JobPage {
 public:
  void add_options(CLI::App& verb) override;
  bool is_wanted() const override;
  int around(launch::LaunchOptions& options, std::optional<std::filesystem::path>* log_copies,
             const std::function<int()>& job) const override;

 private:
  bool wanted_ = false;
  std::string port_;
  std::vector<std::string> compared_;
};

}  // namespace gyre::app
