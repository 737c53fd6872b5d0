#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "gyre/jobs/resources/resources.h"

namespace gyre::jobs::resources {

// Resources as Batch AI's REST shows them, and back. Secrets are left out: names come back, values are null.

/// "2018-06-01T12:00:00.123456Z".
std::string iso_8601_time(TimeUs time);
/// Fractions of a second are optional, and so is what follows them. nullopt if the text is not a time in this format.
std::optional<TimeUs> time_from_iso_8601(const std::string& text);

/// The `id` of a resource: its path in the interface.
std::string id_of(const ClusterName& name);
std::string id_of(const ExperimentName& name);
std::string id_of(const JobName& name);

nlohmann::json to_json(const User& user);
nlohmann::json to_json(const Workspace& workspace);
nlohmann::json to_json(const Usage& usage);
nlohmann::json to_json(const Cluster& cluster);
nlohmann::json to_json(const Node& node);
nlohmann::json to_json(const Experiment& experiment);
nlohmann::json to_json(const Job& job);
nlohmann::json to_json(const Explanation& explanation);
nlohmann::json to_json(const Event& event);

// From an answer, perhaps of a later version: what is not known is left out. Error(kProtocol) for something else.

/// `spec` has the values that a command line shows: nodes, cluster, priority, logs and outputs.
Job job_from_json(const nlohmann::json& json);
Explanation explanation_from_json(const nlohmann::json& json);
Event event_from_json(const nlohmann::json& json);

/// The details of an error as the catalog keeps them: an object of JSON, or nothing.
std::string details_text(const ResourceError& error);
/// Nothing where the text cannot be read.
std::map<std::string, std::string> details_from_text(const std::string& text);

}  // namespace gyre::jobs::resources
