#include "gyre/jobs/node/internal/attempt_task.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "gyre/jobs/orders/json_fields.h"

namespace gyre::jobs::node::internal {

using orders::JsonFields;
using orders::WorkOrder;

namespace {

using Json = nlohmann::json;

}  // namespace

Json to_json(const AttemptTask& task) {
  return {{"kind", task.kind == AttemptTask::Kind::kSetup ? "setup" : "job"},
          {"root", task.root.string()},
          {"gyre_program", task.gyre_program},
          {"base", task.base},
          {"grace_seconds", task.grace.count()},
          {"in_container", task.in_container},
          {"own_account", task.own_account},
          {"has_places", task.has_places},
          {"links_on_mounts", task.links_on_mounts},
          {"code_descriptor", task.code_descriptor},
          {"environment_bytes", task.environment_bytes},
          {"lines", task.lines},
          {"state", to_json(task.state)}};
}

AttemptTask attempt_task_from_json(const Json& json) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const JsonFields fields(json, "the task of an attempt's process");
  AttemptTask task;
  task.kind = fields.text("kind") == "setup" ? AttemptTask::Kind::kSetup : AttemptTask::Kind::kJob;
  task.root = fields.text("root");
  task.gyre_program = fields.text("gyre_program");
  task.base = fields.at("base").get<Variables>();
  task.grace = std::chrono::seconds(fields.integer("grace_seconds", 0, kMost));
  task.in_container = fields.boolean("in_container");
  task.own_account = fields.boolean("own_account");
  task.has_places = fields.boolean("has_places");
  task.links_on_mounts = fields.boolean("links_on_mounts");
  task.code_descriptor = static_cast<int>(fields.integer("code_descriptor", -1, kMost));
  task.environment_bytes =
      static_cast<std::uint64_t>(fields.integer("environment_bytes", 0, std::numeric_limits<std::int64_t>::max()));
  for (const Json& line : fields.array("lines", kMostKeptLines)) task.lines.push_back(line.get<std::string>());
  task.state = saved_attempt_from_json(fields.at("state"), "the task's state");
  return task;
}

WorkOrder without_cluster_secrets(WorkOrder order) {
  const auto hide = [](spec::SecretValue& secret) {
    if (secret.text) secret.text = "-";  // Too short for a secret that logs must not show.
  };
  spec::ClusterSpec& cluster = order.cluster;
  cluster.setup_task.reset();
  cluster.user_account.reset();
  cluster.app_insights.reset();
  for (auto& share : cluster.mount_volumes.azure_file_shares) hide(share.account_key);
  for (auto& blobs : cluster.mount_volumes.azure_blob_file_systems) hide(blobs.account_key);
  return order;
}

}  // namespace gyre::jobs::node::internal
