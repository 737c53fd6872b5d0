#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "apps/gyre/remote.h"
#include "apps/gyre/verb_group.h"

namespace gyre::app {

std::unique_ptr<VerbGroup> workspace_verbs(CLI::App& app);
std::unique_ptr<VerbGroup> experiment_verbs(CLI::App& app);
std::unique_ptr<VerbGroup> user_verbs(CLI::App& app);
std::unique_ptr<VerbGroup> cluster_verbs(CLI::App& app);
std::unique_ptr<VerbGroup> image_verbs(CLI::App& app);

/// The verb `gyre usage`.
class UsageCommand {
 public:
  explicit UsageCommand(CLI::App& app);
  int run(const std::vector<std::string>& environment) const;

 private:
  CLI::App* verb_;
  Remote remote_;
};

}  // namespace gyre::app
