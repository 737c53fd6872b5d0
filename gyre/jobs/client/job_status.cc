#include "gyre/jobs/client/job_status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "gyre/cli/table.h"

namespace gyre::jobs::client {

namespace {

using cli::Tone;
using resources::ExecutionState;

Tone tone_of(ExecutionState state) {
  switch (state) {
    case ExecutionState::kSucceeded: return Tone::kGood;
    case ExecutionState::kFailed:
    case ExecutionState::kTerminating: return Tone::kBad;
    case ExecutionState::kRunning: return Tone::kBusy;
    case ExecutionState::kQueued: break;
  }
  return Tone::kDim;
}

}  // namespace

JobGlance glance_of(const resources::Job& job, const std::string& shown, resources::TimeUs now) {
  const bool waits = job.execution_state == ExecutionState::kQueued;
  const resources::TimeUs since = waits ? job.creation_time : job.execution_info.start_time.value_or(job.creation_time);
  const resources::TimeUs until = job.execution_info.end_time.value_or(now);
  return {.name = shown,
          .state = job.execution_state,
          .nodes = job.spec.node_count,
          .attempts = job.attempts,
          .since = cli::shown_seconds((until - since) / 1'000'000)};
}

std::vector<cli::BlockLine> block_of(const JobGlance& job) {
  std::string first =
      fmt::format("{}  {}  {} node{}", job.name, resources::name(job.state), job.nodes, job.nodes == 1 ? "" : "s");
  if (!job.since.empty()) first += "  " + job.since;
  if (job.attempts > 1) first += fmt::format("  attempt {}", job.attempts);
  std::vector<cli::BlockLine> lines = {{first, tone_of(job.state)}};
  if (!job.node_names.empty()) lines.push_back({fmt::format("  on {}", fmt::join(job.node_names, ", ")), Tone::kDim});
  if (!job.detail.empty()) lines.push_back({"  " + job.detail, Tone::kDim});
  return lines;
}

std::optional<std::string> sentence_about(const resources::Event& event) {
  if (event.to.empty() && event.message.empty()) return std::nullopt;
  const std::string what = event.to.empty() ? event.subject : event.subject + " " + event.to;
  return event.message.empty() ? what : what + ": " + event.message;
}

bool must_change_something(const resources::Explanation& why) {
  constexpr std::array kReasons = {"clusterTooSmall", "quotaTooSmall", "noCluster", "clusterUnusable"};
  return std::ranges::find(kReasons, why.reason) != kReasons.end();
}

}  // namespace gyre::jobs::client
