#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gyre/jobs/spec/values.h"

namespace gyre::jobs::spec {

enum class VmPriority { kDedicated, kLowPriority };

/// What happens to running jobs when a cluster shrinks.
enum class NodeDeallocationOption {
  kRequeue,               ///< End them and queue them again.
  kTerminate,             ///< End them for good.
  kWaitForJobCompletion,  ///< Let them finish; start nothing new on the nodes that leave.
};

struct ManualScale {
  int target_node_count = 0;
  NodeDeallocationOption node_deallocation_option = NodeDeallocationOption::kRequeue;

  bool operator==(const ManualScale&) const = default;
};

struct AutoScale {
  int minimum_node_count = 0;
  int maximum_node_count = 0;
  int initial_node_count = 0;  ///< Matters only when the cluster is made.

  bool operator==(const AutoScale&) const = default;
};

struct ImageReference {
  std::string publisher;
  std::string offer;
  std::string sku;
  std::optional<std::string> version;
  std::optional<std::string> virtual_machine_image_id;

  bool operator==(const ImageReference&) const = default;
};

/// A shell line that runs as root on each node when it joins the cluster or comes back after a restart.
struct SetupTask {
  std::string command_line;
  std::string std_out_err_path_prefix;
  std::vector<EnvironmentVariable> environment_variables;
  std::vector<SecretVariable> secrets;

  bool operator==(const SetupTask&) const = default;
};

/// Where the nodes' counters are sent.
struct AppInsightsReference {
  std::string component_id;
  SecretValue instrumentation_key;

  bool operator==(const AppInsightsReference&) const = default;
};

/// The account for ssh; jobs run as another user.
struct UserAccountSettings {
  std::string admin_user_name;  ///< Empty where the file leaves it to the client, which took the caller's own name.
  std::optional<std::string> admin_user_ssh_public_key;
  std::optional<std::string> admin_user_password;  ///< A secret.

  bool operator==(const UserAccountSettings&) const = default;
};

/// What a job with containerSettings does on the cluster's nodes.
enum class Containers {
  kContainer,  ///< It runs in its container.
  kRefused,    ///< It is refused when it is submitted.
  kHost,       ///< It runs on the host, without its container.
};

/// Our own block of a cluster file.
struct ClusterGyreSettings {
  std::string driver = "local";                       ///< Which driver provides the nodes.
  std::map<std::string, std::string> driver_options;  ///< Whatever the driver knows: a partition, an account.
  /// What stands in for file shares: the relative mount path of a volume, and the directory on the nodes.
  std::map<std::string, std::string> mounts;
  Containers containers = Containers::kContainer;

  bool operator==(const ClusterGyreSettings&) const = default;
};

/// A cluster as Batch AI's version 2018-05-01 describes it, whichever version or form its file had.
struct ClusterSpec {
  std::string vm_size;  ///< Empty only where the file names a driver of ours.
  VmPriority vm_priority = VmPriority::kDedicated;
  std::variant<ManualScale, AutoScale> scale_settings;
  std::optional<ImageReference> image;
  std::optional<SetupTask> setup_task;
  MountVolumes mount_volumes;
  std::optional<AppInsightsReference> app_insights;
  std::optional<UserAccountSettings> user_account;
  std::optional<std::string> subnet_id;
  ClusterGyreSettings gyre;

  bool operator==(const ClusterSpec&) const = default;
};

}  // namespace gyre::jobs::spec
