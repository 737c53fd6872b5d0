#include "gyre/jobs/hub/attempt_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/jobs/resources/job_end.h"

namespace gyre::jobs::hub {

using orders::NodeFacts;
using orders::NodePlace;
using orders::NodeReport;
using orders::Phase;
using orders::StopReason;
using orders::WorkOrder;

AttemptRun::AttemptRun(WorkOrder order) : order_(std::move(order)), nodes_(order_.nodes.size()) {}

WorkOrder AttemptRun::order_for(int node) const {
  WorkOrder order = order_;
  order.node = node;
  return order;
}

std::optional<int> AttemptRun::index_of(const std::string& program) const {
  const auto found = std::ranges::find(order_.nodes, program, &NodePlace::registered_name);
  if (found == order_.nodes.end()) return std::nullopt;
  return static_cast<int>(found - order_.nodes.begin());
}

void AttemptRun::place(int node, const std::string& address, int cores, int gpus) {
  NodePlace& here = order_.nodes[static_cast<std::size_t>(node)];
  if (!here.address.empty() || address.empty()) return;
  here.address = address;
  here.cores = cores;
  here.gpus = gpus;
}

bool AttemptRun::placed() const { return std::ranges::none_of(order_.nodes, &std::string::empty, &NodePlace::address); }

void AttemptRun::blame(int exit_code, const resources::ResourceError& error) {
  if (!cause_) cause_.emplace(exit_code, error);
}

void AttemptRun::report(int node, const NodeReport& report) {
  NodeView& state = nodes_[static_cast<std::size_t>(node)];
  if (state.over() && state.report && report.phase == Phase::kEnded && !report.sends_logs) {
    state.report->sends_logs = false;
  }
  // Late news: it only ever goes on.
  if (state.over() || (state.report && report.phase < state.report->phase)) return;
  state.report = report;
  for (const std::string& note : report.notes) {
    if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(note);
  }
  if (report.phase == Phase::kEnded && report.record && report.record->error && !report.record->was_done) {
    if (!cause_) cause_us_ = report.record->ended_us;
    blame(report.record->exit_code, *report.record->error);
  }
}

void AttemptRun::lose(int node, const std::string& why, NodeLoss loss) {
  NodeView& state = nodes_[static_cast<std::size_t>(node)];
  if (state.sends_logs() && state.over()) {
    state.report->sends_logs = false;
    const std::string& id = order_.nodes[static_cast<std::size_t>(node)].id;
    notes_.push_back(fmt::format("node {} was lost after the job's end, and the end of its logs with it: {}", id, why));
  }
  if (state.over()) return;
  state.lost = why;
  state.hopeless = loss == NodeLoss::kHopeless;
  if (stop_ && stop_->reason == StopReason::kRequest) {
    return blame(resources::kTerminatedExitCode,
                 {resources::error_code::kJobFailed, "the job was terminated", {{"reason", "request"}}});
  }
  const std::string& id = order_.nodes[static_cast<std::size_t>(node)].id;
  blame(resources::kNotTheJobsExitCode, {resources::error_code::kInternal,
                                         fmt::format("node {} was lost: {}", id, why),
                                         {{"node", id}, {"reason", "node_lost"}}});
}

void AttemptRun::stop(StopReason reason, std::chrono::seconds grace) {
  if (!stop_) stop_ = Stop{reason, grace};
  stop_->grace = std::min(stop_->grace, grace);
}

bool AttemptRun::all_at_least(Phase phase) const {
  return std::ranges::all_of(nodes_, [&](const NodeView& node) { return node.report && node.report->phase >= phase; });
}

NodeCommand AttemptRun::command_for(int node) const {
  const NodeView& state = nodes_[static_cast<std::size_t>(node)];
  if (state.forgotten) return NodeCommand::kNone;
  if (state.over()) return acknowledged_ && ended() ? NodeCommand::kForget : NodeCommand::kNone;
  const bool stopping = stop_ || cause_;
  // Where nothing was begun nothing has to be ended; only the node can know, though.
  if (!state.report) return placed() ? NodeCommand::kPrepare : NodeCommand::kNone;
  const bool is_needed = state.report->phase == Phase::kDone && some_run() && stop_grace().count() > 0;
  if (stopping) return is_needed ? NodeCommand::kNone : NodeCommand::kStop;
  if (state.report->phase == Phase::kPrepared && all_at_least(Phase::kPrepared)) return NodeCommand::kRun;
  if (all_at_least(Phase::kDone)) return NodeCommand::kFinish;
  return NodeCommand::kNone;
}

bool AttemptRun::some_run() const {
  return std::ranges::any_of(nodes_, [](const NodeView& node) {
    return !node.over() && node.report && node.report->phase == Phase::kRunning;
  });
}

std::optional<AttemptRun::LostWhenDone> AttemptRun::lost_when_done() const {
  std::optional<LostWhenDone> first;
  for (const NodeView& node : nodes_) {
    const auto* record = node.report && node.report->record ? &*node.report->record : nullptr;
    if (record == nullptr || !record->was_done || !record->error) continue;
    if (!first || record->ended_us < first->ended_us) {
      first = {record->ended_us, {record->exit_code, *record->error}};
    }
  }
  return first;
}

std::optional<std::pair<int, resources::ResourceError>> AttemptRun::failure() const {
  const auto loss = lost_when_done();
  if (!loss) return cause_;
  // What fails after the loss may have failed because of it.
  if (cause_) return cause_us_ < loss->ended_us ? cause_ : loss->cause;
  const bool all_done = std::ranges::all_of(nodes_, [](const NodeView& node) {
    return node.report && node.report->record && (node.report->record->was_done || !node.report->record->asked_to_end);
  });
  return all_done ? std::nullopt : std::optional(loss->cause);
}

std::vector<NodeFacts> AttemptRun::all_facts() const {
  std::vector<NodeFacts> all;
  for (const NodeView& node : nodes_)
    all.push_back(node.report ? node.report->facts.value_or(NodeFacts()) : NodeFacts());
  return all;
}

bool AttemptRun::running() const {
  const auto was_prepared = [](const NodeView& node) { return node.report && node.report->facts; };
  return all_at_least(Phase::kRunning) && std::ranges::all_of(nodes_, was_prepared);
}

bool AttemptRun::ended() const {
  return std::ranges::all_of(nodes_, [](const NodeView& node) { return node.over(); });
}

bool AttemptRun::complete() const {
  return ended() && std::ranges::none_of(nodes_, [](const NodeView& node) { return node.sends_logs(); });
}

bool AttemptRun::forgotten() const {
  return std::ranges::all_of(nodes_, [](const NodeView& node) { return node.forgotten || node.lost; });
}

AttemptResult AttemptRun::result() const {
  GYRE_CHECK(ended());
  AttemptResult result;
  result.started_us = std::numeric_limits<std::int64_t>::max();
  bool any_asked = false;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const NodeView& node = nodes_[i];
    if (node.lost) result.lost.push_back(order_.nodes[i].id);
    result.hopeless = result.hopeless || node.hopeless;
    if (!node.report) continue;
    if (result.log_folder.empty()) result.log_folder = node.report->log_folder;
    if (result.outputs.empty()) result.outputs = node.report->outputs;
    if (!node.report->record) continue;
    any_asked = any_asked || (node.report->record->asked_to_end && !node.report->record->was_done);
    result.started_us = std::min(result.started_us, node.report->record->started_us);
    result.ended_us = std::max(result.ended_us, node.report->record->ended_us);
  }
  result.started_us = std::min(result.started_us, result.ended_us);
  const auto failed = failure();
  if (failed) {
    result.exit_code = failed->first;
    result.error = failed->second;
  }
  result.preempted = !failed && any_asked;
  return result;
}

std::map<std::string, NodeReport> AttemptRun::last_reports() const {
  GYRE_CHECK(ended());
  std::map<std::string, NodeReport> reports;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const NodeView& node = nodes_[i];
    if (!node.lost && node.report) reports[order_.nodes[i].registered_name()] = *node.report;
  }
  return reports;
}

}  // namespace gyre::jobs::hub
