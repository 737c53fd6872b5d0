#include "gyre/jobs/node/node_folders.h"

#include <fmt/format.h>

#include <string_view>

namespace gyre::jobs::node {

using orders::WorkOrder;

namespace {

std::string below(std::string prefix, const std::string& segment, std::string_view last) {
  while (prefix.size() > 1 && prefix.ends_with('/')) prefix.pop_back();
  return segment.empty() ? fmt::format("{}/{}", prefix, last) : fmt::format("{}/{}/{}", prefix, segment, last);
}

std::string log_of_step(const std::string& stream, const char* step, const WorkOrder& order) {
  if (order.nodes.size() == 1) return fmt::format("{}-{}.txt", stream, step);
  return fmt::format("{}-{}-{}.txt", stream, step, order.here().id);
}

}  // namespace

std::filesystem::path mount_root(const WorkOrder& order, const NodeFolders& folders) {
  return order.mount_root.empty() ? folders.mounts() : std::filesystem::path(order.mount_root);
}

std::filesystem::path job_mount_root(const WorkOrder& order, const NodeFolders& folders) {
  return order.job_mount_root.empty() ? folders.job_mounts(order.job_name)
                                      : std::filesystem::path(order.job_mount_root);
}

std::filesystem::path jobs_root(const WorkOrder& order, const NodeFolders& folders) {
  return order.jobs_root.empty() ? folders.jobs() : std::filesystem::path(order.jobs_root);
}

std::filesystem::path job_folder(const WorkOrder& order, const NodeFolders& folders) {
  return jobs_root(order, folders) / order.job_name;
}

// The account of the job owns it, so it must not be the node's own folder, which drivers put into /tmp too
// (gyre-ATTEMPT).
std::filesystem::path temporary_folder(const std::string& attempt) { return "/tmp/gyre." + attempt; }

std::filesystem::path work_folder(const WorkOrder& order, const NodeFolders& folders) {
  const auto code = folders.code(order.job_name).lexically_relative(folders.jobs());
  return order.code_sha256.empty() ? job_folder(order, folders) : jobs_root(order, folders) / code;
}

std::string output_folder(const std::string& prefix, const std::string& segment) {
  return below(prefix, segment, "outputs");
}

std::string log_folder(const std::string& prefix, const std::string& segment) {
  return below(prefix, segment, "stdouterr");
}

std::string kept_files_folder(const std::string& prefix, const std::string& segment) {
  return below(prefix, segment, spec::kKeptFiles);
}

std::string preparation_log(const std::string& stream, const WorkOrder& order) {
  return log_of_step(stream, "job_prep", order);
}

std::string environment_log(const std::string& stream, const WorkOrder& order) {
  return log_of_step(stream, "environment", order);
}

std::string execution_log(const WorkOrder& order) {
  return order.nodes.size() == 1 ? "execution.log" : fmt::format("execution-{}.log", order.here().id);
}

}  // namespace gyre::jobs::node
