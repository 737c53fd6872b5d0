#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "gyre/jobs/api/resources.h"

namespace gyre::jobs::api::internal {

// Resources as Batch AI's REST shows them. Secrets are left out: names come back, values are null.

/// "2018-06-01T12:00:00.123456Z".
std::string iso_8601_time(TimeUs time);

std::string_view state_name(ProvisioningState state);
std::string_view state_name(AllocationState state);
std::string_view state_name(NodeState state);
/// Without case. Nothing for a word that is no state.
std::optional<ExecutionState> execution_state_named(std::string_view text);

std::string path_of(const ClusterName& name);
std::string path_of(const ExperimentName& name);
std::string path_of(const JobName& name);

nlohmann::json to_json(const User& user);
nlohmann::json to_json(const Workspace& workspace);
nlohmann::json to_json(const Usage& usage);
nlohmann::json to_json(const Cluster& cluster);
nlohmann::json to_json(const Node& node);
nlohmann::json to_json(const Experiment& experiment);
nlohmann::json to_json(const Job& job);
nlohmann::json to_json(const Explanation& explanation);
nlohmann::json to_json(const Event& event);

}  // namespace gyre::jobs::api::internal
