#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gyre/cli/live_block.h"
#include "gyre/jobs/resources/resources.h"

namespace gyre::jobs::client {

// What a command line says of a job that it follows. Pure.

/// What a block shows of a job that has not ended.
struct JobGlance {
  std::string name{};
  resources::ExecutionState state = resources::ExecutionState::kQueued;
  int nodes = 0;
  int attempts = 0;
  std::string since{};                    ///< For how long it has run, or waited: "2m10s".
  std::vector<std::string> node_names{};  ///< Of those that it has.
  std::string detail{};                   ///< Why it waits, or what has happened last.
};

/// `shown`: how the command line writes its name.
JobGlance glance_of(const resources::Job& job, const std::string& shown, resources::TimeUs now);

/// "train  running  2 nodes  2m10s", and below it the nodes and the detail where there are any.
std::vector<cli::BlockLine> block_of(const JobGlance& job);

/// "job running: all nodes are prepared"; nothing for an event that says nothing.
std::optional<std::string> sentence_about(const resources::Event& event);

/// Whether a job waits for something that somebody has to change.
bool must_change_something(const resources::Explanation& why);

}  // namespace gyre::jobs::client
