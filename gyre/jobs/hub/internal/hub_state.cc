#include "gyre/jobs/hub/internal/hub_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace gyre::jobs::hub::internal {

using orders::encode_attempt;
using orders::NodePlace;
using orders::NodeReport;
using orders::Phase;
using orders::Registration;
using orders::RunCommand;
using orders::StopAttempt;
using orders::StopReason;
using orders::WorkOrder;

namespace {

/// For so long after a service has started an attempt that it does not know is left alone: node programs come within
/// milliseconds, perhaps before the service has read what it had written down.
constexpr std::chrono::seconds kHandOver{2};

}  // namespace

void HubState::submit(const WorkOrder& order, Time now) {
  if (attempts_.contains(order.attempt)) return;
  // Its nodes are asked below, and report again.
  std::erase_if(early_, [&](const auto& report) { return report.first.second == order.attempt; });
  const auto [place, ignored] = attempts_.emplace(order.attempt, Entry{AttemptRun(order), 0, false, false, {}});
  for (const NodePlace& node : order.nodes) {
    NodeContact& contact = nodes_[node.registered_name()];
    // From now on it is expected; an earlier silence was nobody's business.
    if (!contact.connected) contact = {false, now, false};
    AttemptRun& run = place->second.run;
    run.place(*run.index_of(node.registered_name()), contact.address, contact.cores, contact.gpus);
  }
  update(place->second);
}

void HubState::stop(const std::string& attempt, StopReason reason, std::chrono::seconds grace) {
  const auto found = attempts_.find(attempt);
  if (found == attempts_.end()) return;
  found->second.run.stop(reason, grace);
  found->second.told.clear();  // The grace may be shorter now.
  update(found->second);
}

void HubState::acknowledge(const std::string& attempt) {
  const auto found = attempts_.find(attempt);
  if (found == attempts_.end() || !found->second.run.complete()) return;
  found->second.run.acknowledge();
  update(found->second);
  if (found->second.run.forgotten()) attempts_.erase(found);
}

void HubState::node_came(const Registration& registration, Time now) {
  nodes_[registration.node] = {true, now, false, true, registration.address, registration.cores, registration.gpus};
  nodes_[registration.node].asks_for_code = registration.asks_for_code;
  events_.push_back({HubEvent::Kind::kNodeCame, "", registration.node, "", std::nullopt});
  for (auto& [name, entry] : attempts_) {
    const auto node = entry.run.index_of(registration.node);
    if (!node) continue;
    entry.told.erase(*node);
    entry.run.place(*node, registration.address, registration.cores, registration.gpus);
  }
  for (const NodeReport& each : registration.reports) report(registration.node, each);
  for (auto& [name, entry] : attempts_) update(entry);
}

void HubState::node_gone(const std::string& node) {
  nodes_[node].connected = false;
  events_.push_back({HubEvent::Kind::kNodeGone, "", node, "", std::nullopt});
}

void HubState::renewed(const std::string& node, Time now) { nodes_[node].last = now; }

void HubState::note_work(const std::string& node, const NodeReport& report) {
  std::string& busy_with = nodes_[node].busy_with;
  if (report.phase != Phase::kEnded) {
    busy_with = report.attempt;
  } else if (busy_with == report.attempt) {
    busy_with.clear();
    for (auto& [name, entry] : attempts_) {
      if (name != report.attempt && entry.run.index_of(node)) update(entry);
    }
  }
}

void HubState::report(const std::string& node, const NodeReport& report) {
  note_work(node, report);
  const auto found = attempts_.find(report.attempt);
  const auto index = found == attempts_.end() ? std::nullopt : found->second.run.index_of(node);
  if (!index) {
    if (handed_over_) return settle(node, report);
    early_[{node, report.attempt}] = report;
    return;
  }
  found->second.run.report(*index, report);
  update(found->second);
  if (found->second.run.forgotten()) attempts_.erase(found);
}

void HubState::note(const std::string& attempt, const std::string& text) {
  events_.push_back({HubEvent::Kind::kNote, attempt, "", text, std::nullopt});
}

void HubState::settle(const std::string& node, const NodeReport& report) {
  const bool ended = report.phase == Phase::kEnded;
  outgoing_.push_back({node, ended ? orders::message_type::kForget : orders::message_type::kStop,
                       ended ? encode_attempt(report.attempt)
                             : encode(StopAttempt{report.attempt, StopReason::kRequest, std::chrono::seconds(0)})});
}

void HubState::lose_node(const std::string& node, const std::string& why, NodeLoss loss) {
  NodeContact& contact = nodes_[node];
  if (!contact.lost) events_.push_back({HubEvent::Kind::kNodeLost, "", node, why, std::nullopt});
  contact.lost = true;
  for (auto& [name, entry] : attempts_) {
    const auto index = entry.run.index_of(node);
    if (!index) continue;
    entry.run.lose(*index, why, loss);
    update(entry);
  }
}

void HubState::look_at_clock(Time now) {
  if (!handed_over_ && now - started_ >= kHandOver) {
    handed_over_ = true;
    for (const auto& [place, report] : std::exchange(early_, {})) settle(place.first, report);
  }
  const auto lease = options_.lease + options_.margin;
  std::vector<std::pair<std::string, std::string>> lost;
  for (const auto& [id, contact] : nodes_) {
    const auto needs = [&node = id](const auto& attempt) {
      return attempt.second.run.index_of(node) && !attempt.second.run.complete();
    };
    // A node program without a job may go as it likes.
    if (contact.lost || std::ranges::none_of(attempts_, needs)) continue;
    const auto longest = contact.came ? options_.longest_absence : options_.longest_start;
    const bool awaited = contact.came || options_.longest_start.count() > 0;
    const bool absent = !contact.connected && awaited && now - contact.last >= std::max(lease, longest);
    const bool silent = contact.connected && now - contact.last >= lease;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - contact.last).count();
    if (silent) lost.emplace_back(id, fmt::format("it has not renewed its lease for {} s", seconds));
    if (!absent) continue;
    lost.emplace_back(id, contact.came
                              ? fmt::format("its agent lost the connection {} s ago and has not come back", seconds)
                              : fmt::format("its agent has not come since it was started {} s ago", seconds));
  }
  for (const auto& [id, why] : lost) lose_node(id, why);
}

void HubState::update(Entry& entry) {
  AttemptRun& run = entry.run;
  const std::string& attempt = run.order().attempt;
  for (; entry.notes_told < run.notes().size(); ++entry.notes_told) {
    events_.push_back({HubEvent::Kind::kNote, attempt, "", run.notes()[entry.notes_told], std::nullopt});
  }
  if (run.running() && !entry.running_told) {
    entry.running_told = true;
    events_.push_back({HubEvent::Kind::kRunning, attempt, "", "", std::nullopt});
  }
  if (run.complete() && !entry.end_told) {
    entry.end_told = true;
    events_.push_back({HubEvent::Kind::kEnded, attempt, "", "", run.result(), run.last_reports()});
  }
  for (int node = 0; node < static_cast<int>(run.order().nodes.size()); ++node) tell(entry, node);
}

void HubState::tell(Entry& entry, int node) {
  AttemptRun& run = entry.run;
  const std::string& id = run.order().nodes[static_cast<std::size_t>(node)].registered_name();
  const NodeCommand command = run.command_for(node);
  if (command == NodeCommand::kNone || !nodes_[id].connected) return;
  // A node does one thing at a time. It may still be at an attempt that nobody knows any more, which it is to end.
  const std::string& busy_with = nodes_[id].busy_with;
  if (command == NodeCommand::kPrepare && !busy_with.empty() && busy_with != run.order().attempt) return;
  if (entry.told.contains(node) && entry.told[node] == command) return;
  entry.told[node] = command;
  const std::string& attempt = run.order().attempt;
  switch (command) {
    case NodeCommand::kPrepare:
      if (!run.order().code_sha256.empty() && !nodes_[id].asks_for_code) {
        // It is of an earlier version, and has no way to the code; the one that takes its place has.
        return outgoing_.push_back({id, orders::message_type::kLeave, ""});
      }
      return outgoing_.push_back({id, orders::message_type::kPrepare, to_json(run.order_for(node)).dump()});
    case NodeCommand::kRun:
      return outgoing_.push_back({id, orders::message_type::kRun, encode(RunCommand{attempt, run.all_facts()})});
    case NodeCommand::kFinish: return outgoing_.push_back({id, orders::message_type::kFinish, encode_attempt(attempt)});
    case NodeCommand::kStop:
      return outgoing_.push_back(
          {id, orders::message_type::kStop, encode(StopAttempt{attempt, run.stop_reason(), run.stop_grace()})});
    case NodeCommand::kForget:
      outgoing_.push_back({id, orders::message_type::kForget, encode_attempt(attempt)});
      return run.forget(node);
    case NodeCommand::kNone: return;
  }
}

std::vector<Outgoing> HubState::take_outgoing() { return std::exchange(outgoing_, {}); }
std::vector<HubEvent> HubState::take_events() { return std::exchange(events_, {}); }

}  // namespace gyre::jobs::hub::internal
