#include "gyre/jobs/drivers/local/internal/gpu_pool.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <utility>
#include <variant>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"

namespace gyre::jobs::drivers::local::internal {

namespace {

using orders::NodePlace;
using orders::WorkOrder;

std::string counted(std::size_t count) { return fmt::format("{} GPU{}", count, count == 1 ? "" : "s"); }

int largest_node_count(const spec::ClusterSpec& cluster) {
  const auto* manual = std::get_if<spec::ManualScale>(&cluster.scale_settings);
  return manual ? manual->target_node_count : std::get<spec::AutoScale>(cluster.scale_settings).maximum_node_count;
}

/// A line for each node: "node-0 GPU-a,GPU-b".
void write_to(const std::filesystem::path& file, const WorkOrder& order) {
  std::string text;
  for (const NodePlace& node : order.nodes) text += fmt::format("{} {}\n", node.id, fmt::join(*node.devices, ","));
  write_file_atomically(file, as_bytes(text));
}

/// By node.
std::map<std::string, std::vector<std::string>> read_from(const std::filesystem::path& file) {
  std::map<std::string, std::vector<std::string>> devices;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string names = line.substr(space + 1);
    devices[line.substr(0, space)] = names.empty() ? std::vector<std::string>() : split(names, ',');
  }
  return devices;
}

void set_devices(NodePlace& node, std::vector<std::string> devices) {
  node.gpus = static_cast<int>(devices.size());
  node.devices = std::move(devices);
}

}  // namespace

int GpuPool::share(const spec::ClusterSpec& cluster) const {
  return static_cast<int>(gpus_.size()) / std::max(1, largest_node_count(cluster));
}

/// A cluster may have become smaller than its jobs are.
int GpuPool::per_node(const WorkOrder& order) const {
  const int most = static_cast<int>(gpus_.size() / order.nodes.size());
  return order.job.gpus_per_node.value_or(std::min(share(order.cluster), most));
}

void GpuPool::check(const spec::JobSpec& job) const {
  const auto wanted =
      static_cast<std::size_t>(job.gpus_per_node.value_or(0)) * static_cast<std::size_t>(job.node_count);
  if (wanted <= gpus_.size()) return;
  const std::string nodes = job.node_count == 1 ? "" : fmt::format(" on each of {} nodes", job.node_count);
  const std::string there = gpus_.empty() ? "no GPUs" : counted(gpus_.size());
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("it asks for {}{} (gpusPerNode), and the server's machine, whose virtual nodes the cluster "
                          "has, has {}{}",
                          counted(static_cast<std::size_t>(*job.gpus_per_node)), nodes, there,
                          problem_.empty() ? "" : " that can be counted: " + problem_));
}

GpuPool::Names GpuPool::free() const {
  if (!see_all_.empty()) return {};
  Names left = gpus_;
  for (const auto& [attempt, names] : held_) {
    std::erase_if(left, [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); });
  }
  return left;
}

std::string GpuPool::wait_for(std::size_t needed, std::size_t free) const {
  const std::string old = see_all_.empty() ? "" : "; a job that began before GPUs were given out may use all of them";
  return fmt::format("needs {}; {} of the machine's {} {} free{}", counted(needed), free, gpus_.size(),
                     free == 1 ? "is" : "are", old);
}

std::vector<std::string> GpuPool::waits(const std::vector<WorkOrder>& orders) const {
  std::vector<std::string> waits(orders.size());
  if (gpus_.empty()) return waits;
  std::size_t left = free().size();
  bool one_waits = false;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const std::size_t needed = static_cast<std::size_t>(per_node(orders[i])) * orders[i].nodes.size();
    if (needed == 0 || needed > gpus_.size()) continue;  // The latter is refused.
    if (one_waits || needed > left) {
      waits[i] = wait_for(needed, left) + (one_waits ? "; another job is ahead of it" : "");
      one_waits = true;
    } else {
      left -= needed;
    }
  }
  return waits;
}

std::string GpuPool::give(WorkOrder& order, const std::filesystem::path& file) {
  if (gpus_.empty()) return "";
  const auto count = static_cast<std::size_t>(per_node(order));
  const Names left = free();
  const std::size_t needed = count * order.nodes.size();
  if (needed > left.size()) throw Error(ErrorCode::kResourceExhausted, "it " + wait_for(needed, left.size()));
  auto next = left.begin();
  std::vector<std::string> given;
  for (NodePlace& node : order.nodes) {
    const auto end = next + static_cast<std::ptrdiff_t>(count);
    set_devices(node, Names(next, end));
    given.push_back(fmt::format("{} of node {}", fmt::join(next, end, ", "), node.id));
    next = end;
  }
  write_to(file, order);
  held_[order.attempt] = Names(left.begin(), next);
  if (count > 0) return fmt::format("its GPUs: {}", fmt::join(given, "; "));
  if (order.job.gpus_per_node) return "";
  return fmt::format(
      "it sees none of the machine's {}, of which each of the cluster's {} nodes has an equal part; "
      "gpusPerNode (--gpus-per-node) asks for some",
      counted(gpus_.size()), largest_node_count(order.cluster));
}

void GpuPool::take_up(WorkOrder& order, const std::filesystem::path& file) {
  auto devices = read_from(file);
  const bool known = std::ranges::all_of(order.nodes, [&](const NodePlace& node) { return devices.contains(node.id); });
  if (!known) {
    see_all_.insert(order.attempt);
    return;
  }
  Names& held = held_[order.attempt];
  for (NodePlace& node : order.nodes) {
    std::ranges::copy(devices[node.id], std::back_inserter(held));
    set_devices(node, std::move(devices[node.id]));
  }
}

void GpuPool::take_back(const std::string& attempt) {
  held_.erase(attempt);
  see_all_.erase(attempt);
}

}  // namespace gyre::jobs::drivers::local::internal
