#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gyre/jobs/spec/cluster_spec.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::spec {

enum class Secrets {
  kLeftOut,   ///< null, as everybody may see them.
  kIncluded,  ///< For the service's own records and for its node programs, never for an answer or a log.
};

/// The `properties` of a resource in the form of 2018-05-01, defaults written out, durations as ISO 8601. With
/// Secrets::kIncluded, parse_job(to_json(job)) is `job` again.
nlohmann::json to_json(const JobSpec& job, Secrets secrets = Secrets::kLeftOut);
nlohmann::json to_json(const ClusterSpec& cluster, Secrets secrets = Secrets::kLeftOut);

}  // namespace gyre::jobs::spec
