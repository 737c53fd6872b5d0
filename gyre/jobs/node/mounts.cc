#include "gyre/jobs/node/mounts.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <ranges>
#include <set>
#include <sstream>
#include <system_error>

#include "gyre/base/error.h"

namespace gyre::jobs::node {

using orders::WorkOrder;

namespace {

namespace fs = std::filesystem;

struct Volume {
  const char* kind;
  std::string path;  // relativeMountPath
};

std::vector<Volume> volumes_of(const spec::MountVolumes& volumes) {
  std::vector<Volume> all;
  for (const auto& each : volumes.azure_file_shares) all.push_back({"azureFileShares", each.relative_mount_path});
  for (const auto& each : volumes.file_servers) all.push_back({"fileServers", each.relative_mount_path});
  for (const auto& each : volumes.unmanaged_file_systems) {
    all.push_back({"unmanagedFileSystems", each.relative_mount_path});
  }
  for (const auto& each : volumes.azure_blob_file_systems) {
    all.push_back({"azureBlobFileSystems", each.relative_mount_path});
  }
  return all;
}

std::string without_slash_at_end(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

[[noreturn]] void refuse(const Volume& volume, const char* owner) {
  const bool blob = std::string_view(volume.kind) == "azureBlobFileSystems";
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("the {}'s volume '{}' ({}) is nowhere: {}name a directory that stands in for it, with "
                  "--mount {}=DIR or under gyreSettings.mounts of the cluster",
                  owner, volume.path, volume.kind,
                  blob ? "blob containers need the object store, which does not exist yet; " : "", volume.path));
}

bool lies_below(const fs::path& path, const fs::path& folder) {
  const auto [end, ignored] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

/// "\040" and the like stand for characters that would end a field.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool shows(const Mount& mount, MountMethod method) {
  std::error_code failure;
  if (method == MountMethod::kLink) return fs::read_symlink(mount.target, failure) == mount.source;
  const auto points = mount_points_below(mount.target);
  return std::ranges::find(points, mount.target) != points.end() && fs::equivalent(mount.source, mount.target, failure);
}

void bind(const Mount& mount) {
  fs::create_directories(mount.target);
  if (::mount(mount.source.c_str(), mount.target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0) return;
  throw system_error(fmt::format("cannot mount {} at {}", mount.source.string(), mount.target.string()), errno);
}

/// At once: other nodes of this machine may make the same link, or use it already.
void link(const Mount& mount) {
  fs::create_directories(mount.target.parent_path());
  const fs::path draft = fmt::format("{}.{}", mount.target.string(), ::getpid());
  std::error_code ignored;
  fs::remove(draft, ignored);
  fs::create_directory_symlink(mount.source, draft);
  fs::rename(draft, mount.target);
}

}  // namespace

MountPlan plan_mounts(const WorkOrder& order, const NodeFolders& folders) {
  MountPlan plan;
  std::map<std::string, fs::path> table;
  for (const auto& [name, directory] : order.cluster.gyre.mounts) {
    table[without_slash_at_end(name)] = fs::absolute(directory);
  }
  std::set<std::string> used;
  const auto add = [&](const spec::MountVolumes& volumes, const char* owner, const fs::path& root,
                       std::vector<Mount>& mounts) {
    for (const Volume& volume : volumes_of(volumes)) {
      const std::string name = without_slash_at_end(volume.path);
      const auto found = table.find(name);
      if (found == table.end()) refuse(volume, owner);
      used.insert(name);
      mounts.push_back({found->second, root / name});
    }
  };
  add(order.cluster.mount_volumes, "cluster", mount_root(order, folders), plan.cluster);
  add(order.job.mount_volumes, "job", job_mount_root(order, folders), plan.job);
  for (const auto& [name, directory] : table) {
    if (!used.contains(name)) plan.cluster.push_back({directory, mount_root(order, folders) / name});
  }
  plan.job.push_back({order.shared_folder, folders.shared(order.job_name)});
  if (!order.jobs_root.empty()) plan.job.push_back({folders.jobs(), order.jobs_root});  // Last: with what is in it.
  return plan;
}

void check_places(const WorkOrder& order, const NodeFolders& folders, const JobEnvironment& environment,
                  const MountPlan& mounts) {
  // Not from the environment, in which the job's own variables may have replaced it.
  const fs::path root = mount_root(order, folders);
  const auto on_mount = [](const fs::path& path, const std::vector<Mount>& all) {
    return std::ranges::any_of(all, [&](const Mount& mount) { return lies_below(path, mount.target); });
  };
  const auto check = [&](const std::string& what, const fs::path& path) {
    if (std::ranges::find(path, "..") != path.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} of the job, {}, has a '..', which could lead anywhere", what, path.string()));
    }
    const bool own = lies_below(path, jobs_root(order, folders)) || lies_below(path, order.shared_folder);
    if (!own && !lies_below(path, root) && !on_mount(path, mounts.job)) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{} of the job, {}, lies outside its mounts and its own folders; begin it with "
                      "$AZ_BATCHAI_MOUNT_ROOT/NAME (a mount of the cluster: --mount NAME=DIR), "
                      "$AZ_BATCHAI_JOB_MOUNT_ROOT/NAME (one of the job's) or $AZ_BATCHAI_JOB_TEMP_DIR (the node)",
                      what, path.string()));
    }
    const bool lost = lies_below(path, root) && !on_mount(path, mounts.cluster);
    if (!lost) return;
    const fs::path name = *fs::path(path).lexically_relative(root).begin();
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} of the job lies at $AZ_BATCHAI_MOUNT_ROOT/{}, where nothing is mounted; name a directory "
                    "with --mount {}=DIR or under gyreSettings.mounts of the cluster",
                    what, name.string(), name.string()));
  };
  check("stdOutErrPathPrefix", environment.log_folder);
  for (const OutputPlace& output : environment.outputs) check("output directory " + output.id, output.path);
}

void check_mounts(const spec::JobSpec& job, const spec::ClusterSpec& cluster) {
  WorkOrder order;
  order.attempt = order.job_name = order.path_segment = "job";
  order.job = job;
  order.cluster = cluster;
  order.nodes = {{.id = "node", .address = "127.0.0.1"}};
  order.shared_folder = "/shared";
  const NodeFolders folders("/node");
  const JobEnvironment environment = job_environment(order, folders, {{"HOME", folders.job(order.job_name)}});
  const MountPlan mounts = plan_mounts(order, folders);
  check_places(order, folders, environment, mounts);
  if (job.output_files.empty() || cluster.gyre.driver == "local") return;
  if (!lies_below(resolved(environment.kept_files, mounts), folders.root())) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the files that outputFiles (--output) names would be kept beside its logs, in {}, on a node "
                          "whose folder is removed with the job; name a mount for the logs with stdOutErrPathPrefix "
                          "(gyre job submit --logs '$AZ_BATCHAI_MOUNT_ROOT/NAME')",
                          job.std_out_err_path_prefix));
}

fs::path resolved(const fs::path& path, const MountPlan& mounts) {
  fs::path place = path;
  // The last one first: its source can lie on a mount that was made before it, never on a later one.
  for (const auto* all : {&mounts.job, &mounts.cluster}) {
    for (const Mount& mount : std::views::reverse(*all)) {
      if (!lies_below(place, mount.target)) continue;
      const fs::path below = place.lexically_relative(mount.target);
      place = below == "." ? mount.source : mount.source / below;
    }
  }
  return place;
}

bool keeps_logs_on_node(const WorkOrder& order, const NodeFolders& folders, const JobEnvironment& environment) {
  return lies_below(resolved(environment.log_folder, plan_mounts(order, folders)), folders.jobs());
}

std::optional<std::string> why_not_mountable(const fs::path& directory) {
  std::error_code failure;
  if (fs::is_directory(directory, failure)) return std::nullopt;
  if (failure == std::errc::no_such_file_or_directory) {
    return fmt::format("there is no directory {}", directory.string());
  }
  return failure ? fmt::format("the directory {} cannot be used: {}", directory.string(), failure.message())
                 : fmt::format("{} is not a directory", directory.string());
}

void make_mount(const Mount& mount, MountMethod method) {
  if (const auto why = why_not_mountable(mount.source)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}; it was to be mounted at {}", *why, mount.target.string()));
  }
  if (shows(mount, method)) return;
  try {
    method == MountMethod::kBind ? bind(mount) : link(mount);
  } catch (const fs::filesystem_error& error) {
    throw system_error(fmt::format("cannot make the mount point {}", mount.target.string()), error.code().value());
  }
}

std::vector<fs::path> mount_points_below(const fs::path& folder) {
  std::vector<fs::path> points;
  std::ifstream table("/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 5; ++i) words >> word;  // proc(5): the fifth is the mount point.
    const fs::path point = unescaped(word);
    if (lies_below(point, folder)) points.push_back(point);
  }
  std::ranges::reverse(points);  // Later mounts lie on or below earlier ones.
  return points;
}

void remove_mounts(const fs::path& folder) {
  std::error_code failure;
  const fs::path real = fs::weakly_canonical(folder.parent_path(), failure) / folder.filename();
  for (const fs::path& point : mount_points_below(real)) ::umount2(point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  const auto left = mount_points_below(real);
  if (!left.empty()) {
    throw Error(ErrorCode::kIo, fmt::format("{} is still mounted; nothing below {} was removed", left.front().string(),
                                            folder.string()));
  }
}

void remove_folder(const fs::path& folder) {
  remove_mounts(folder);
  std::error_code failure;
  fs::remove_all(folder, failure);
  if (failure) throw system_error(fmt::format("cannot remove {}", folder.string()), failure.value());
}

void remove_node(const fs::path& root) {
  std::error_code failure;
  remove_mounts(root);
  const auto holds_files_of_jobs = [](const fs::path& folder) {
    std::error_code ignored;
    for (const auto& group : fs::directory_iterator(folder, ignored)) {
      if (fs::exists(group.path() / "workspaces", ignored)) return true;
    }
    return false;
  };
  const fs::path jobs = NodeFolders(root).jobs();
  for (const fs::path& folder : {root, jobs}) {
    for (const auto& entry : fs::directory_iterator(folder, failure)) {
      if (entry.path() == jobs || (folder == jobs && holds_files_of_jobs(entry.path()))) continue;
      fs::remove_all(entry.path(), failure);
      if (failure) throw system_error(fmt::format("cannot remove {}", entry.path().string()), failure.value());
    }
  }
  if (fs::is_empty(jobs, failure) || failure) fs::remove_all(root, failure);
}

bool enter_own_mount_namespace() {
  if (::unshare(CLONE_NEWNS) != 0) return false;
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

}  // namespace gyre::jobs::node
