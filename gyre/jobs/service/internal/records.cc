#include "gyre/jobs/service/internal/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/jobs/spec/parse.h"
#include "gyre/jobs/spec/write.h"

namespace gyre::jobs::service {

namespace {

constexpr const char* kWholeSpec = "spec";  // The one secret's name.
constexpr const char* kCatalog = "the catalog";

/// What `parse` returns; all that it throws means the same.
template <typename Parse>
auto read(const Parse& parse) {
  try {
    return parse();
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kCorruptData, error.what());
  }
}

template <typename Parse>
auto stored(const Parse& parse) {
  StoredSpec<decltype(parse())> result;
  try {
    result.spec = parse();
  } catch (const Error& error) {
    result.problem = fmt::format("its properties in the catalog cannot be read: {}", error.what());
  }
  return result;
}

void blank(spec::SecretValue& value) {
  if (value.text) value.text->clear();
}

void blank(spec::MountVolumes& volumes) {
  for (spec::AzureFileShare& share : volumes.azure_file_shares) blank(share.account_key);
  for (spec::AzureBlobFileSystem& system : volumes.azure_blob_file_systems) blank(system.account_key);
}

void blank(std::vector<spec::SecretVariable>& secrets) {
  for (spec::SecretVariable& secret : secrets) blank(secret.value);
}

void blank(spec::JobSpec& job) {
  blank(job.secrets);
  blank(job.mount_volumes);
  if (job.container_settings && job.container_settings->credentials) {
    blank(job.container_settings->credentials->password);
  }
}

void blank(spec::ClusterSpec& cluster) {
  blank(cluster.mount_volumes);
  if (cluster.setup_task) blank(cluster.setup_task->secrets);
  if (cluster.app_insights) blank(cluster.app_insights->instrumentation_key);
  if (cluster.user_account && cluster.user_account->admin_user_password) {
    cluster.user_account->admin_user_password->clear();
  }
}

template <typename Spec>
KeptSpec split(const Spec& whole) {
  Spec open = whole;
  blank(open);
  KeptSpec result;
  result.text = spec::to_json(open, spec::Secrets::kIncluded).dump();
  if (!(open == whole)) {
    result.secrets.push_back({kWholeSpec, spec::to_json(whole, spec::Secrets::kIncluded).dump()});
  }
  return result;
}

std::string whole_text(const std::string& text, const std::vector<catalog::Secret>& secrets) {
  for (const catalog::Secret& secret : secrets) {
    if (secret.name == kWholeSpec) return secret.value;
  }
  return text;
}

/// `what`: for the error. Secrets may be in `text`, so it is not quoted.
nlohmann::json object_of(const std::string& text, const char* what) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && !json.empty()) return json;
  throw Error(ErrorCode::kCorruptData, fmt::format("{} are not a JSON object with properties", what));
}

}  // namespace

KeptSpec kept(const spec::JobSpec& job) { return split(job); }
KeptSpec kept(const spec::ClusterSpec& cluster) { return split(cluster); }

std::string kept_scale(const resources::Scale& scale) {
  spec::ClusterSpec cluster;
  cluster.scale_settings = scale;
  return spec::to_json(cluster).at("scaleSettings").dump();
}

spec::JobSpec job_spec(const std::string& text, const std::vector<catalog::Secret>& secrets) {
  return read([&] { return spec::job_or_throw(spec::parse_job(whole_text(text, secrets)), kCatalog); });
}

spec::ClusterSpec cluster_spec(const std::string& text, const std::string& scale,
                               const std::vector<catalog::Secret>& secrets) {
  return read([&] {
    // Without scale settings a cluster has no nodes, and its jobs would wait for ever.
    nlohmann::json json = object_of(whole_text(text, secrets), "they");
    json["scaleSettings"] = object_of(scale, "its scale settings");
    return spec::cluster_or_throw(spec::parse_cluster(json.dump()), kCatalog);
  });
}

RetryLimits retry_limits(const spec::JobSpec& job) {
  const auto* settings = std::get_if<spec::GyreSettings>(&job.toolkit);
  if (settings == nullptr || !settings->retries) return {};
  RetryLimits limits{.after_other_failure = *settings->retries};
  if (*settings->retries == 0) limits.after_loss = 0;
  return limits;
}

std::chrono::milliseconds retry_pause(int earlier, std::chrono::milliseconds first, std::chrono::milliseconds longest) {
  constexpr int kMostDoublings = 30;
  return std::min(longest, first * (std::int64_t{1} << std::min(earlier, kMostDoublings)));
}

bool has_secrets(const spec::JobSpec& job) {
  return !job.secrets.empty() || !job.mount_volumes.azure_file_shares.empty() ||
         !job.mount_volumes.azure_blob_file_systems.empty() ||
         (job.container_settings && job.container_settings->credentials);
}

StoredSpec<spec::JobSpec> stored_spec(const catalog::Job& job) {
  return stored([&] { return job_spec(job.spec); });
}

StoredSpec<spec::ClusterSpec> stored_spec(const catalog::Cluster& cluster) {
  return stored([&] { return cluster_spec(cluster.spec, cluster.scale); });
}

resources::Event shown(const catalog::Event& event) {
  return {.sequence = event.sequence,
          .time = event.time,
          .subject = event.subject,
          .name = event.name,
          .attempt = event.attempt,
          .from = event.from,
          .to = event.to,
          .reason = event.reason,
          .message = event.message};
}

scheduler::Priority scheduled(spec::SchedulingPriority priority) {
  switch (priority) {
    case spec::SchedulingPriority::kLow: return scheduler::Priority::kLow;
    case spec::SchedulingPriority::kNormal: return scheduler::Priority::kNormal;
    case spec::SchedulingPriority::kHigh: return scheduler::Priority::kHigh;
  }
  throw Error(ErrorCode::kInternal, "a priority without a name");
}

scheduler::NodeReadiness scheduled(resources::NodeState state) {
  switch (state) {
    case resources::NodeState::kAllocating:
    case resources::NodeState::kPreparing: return scheduler::NodeReadiness::kPreparing;
    case resources::NodeState::kIdle:
    case resources::NodeState::kRunning: return scheduler::NodeReadiness::kReady;
    case resources::NodeState::kUnusable: return scheduler::NodeReadiness::kUnusable;
    case resources::NodeState::kLeaving: return scheduler::NodeReadiness::kLeaving;
    case resources::NodeState::kLost: return scheduler::NodeReadiness::kLost;
  }
  throw Error(ErrorCode::kInternal, "a node state without a name");
}

std::variant<scheduler::ManualScale, scheduler::AutoScale> scheduled(const resources::Scale& scale) {
  if (const auto* manual = std::get_if<spec::ManualScale>(&scale)) {
    auto deallocation = scheduler::Deallocation::kRequeue;
    if (manual->node_deallocation_option == spec::NodeDeallocationOption::kTerminate) {
      deallocation = scheduler::Deallocation::kTerminate;
    } else if (manual->node_deallocation_option == spec::NodeDeallocationOption::kWaitForJobCompletion) {
      deallocation = scheduler::Deallocation::kWaitForCompletion;
    }
    return scheduler::ManualScale{manual->target_node_count, deallocation};
  }
  const auto& automatic = std::get<spec::AutoScale>(scale);
  return scheduler::AutoScale{automatic.minimum_node_count, automatic.maximum_node_count};
}

}  // namespace gyre::jobs::service
