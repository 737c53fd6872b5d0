#include "gyre/jobs/node/internal/job_limits.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <system_error>
#include <variant>

#include "gyre/base/bytes.h"
#include "gyre/base/cgroup.h"
#include "gyre/base/checksum.h"
#include "gyre/base/cores.h"
#include "gyre/base/error.h"
#include "gyre/jobs/containers/container_runtime.h"

namespace gyre::jobs::node::internal {

using orders::WorkOrder;

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLongestRemoval{5};

/// Of a node's cgroups.
std::string prefix_of(const fs::path& root) {
  return fmt::format("gyre-{}-", hex(sha256(as_bytes(root.native()))).substr(0, 16));
}

}  // namespace

LimitsWanted limits_of(const spec::JobSpec& job) {
  LimitsWanted wanted{.cores = job.cpus_per_node, .memory_bytes = std::nullopt};
  if (job.memory_per_node) wanted.memory_bytes = containers::bytes_of_size(*job.memory_per_node);
  return wanted;
}

std::vector<std::string> not_enforced(const LimitsWanted& wanted, std::optional<int> cores_around,
                                      std::optional<std::uint64_t> memory_around, const std::string& why) {
  std::vector<std::string> sentences;
  if (wanted.cores && (!cores_around || *cores_around > *wanted.cores)) {
    sentences.push_back(fmt::format("cpusPerNode, {}, is not enforced: {}", *wanted.cores, why));
  }
  if (wanted.memory_bytes && (!memory_around || *memory_around > *wanted.memory_bytes)) {
    sentences.push_back(fmt::format("memoryPerNode, {} MB, is not enforced: {}", *wanted.memory_bytes >> 20, why));
  }
  return sentences;
}

std::string words_about_kills(const WorkOrder& order, const std::optional<resources::ResourceError>& error,
                              std::int64_t kills) {
  const auto detail = [&](const char* name) {
    return error && error->details.contains(name) ? error->details.at(name) : std::string();
  };
  std::string who = kills == 1 ? "one of its processes" : fmt::format("{} of its processes", kills);
  if (detail("signal") == "SIGKILL") {
    const bool has_ranks = std::holds_alternative<spec::GyreSettings>(order.job.toolkit);
    who = has_ranks && !detail("rank").empty() ? "rank " + detail("rank") : "it";
  }
  return fmt::format(
      "the kernel killed {} because the job reached its memory limit on node {}, memoryPerNode {}; ask for more, or "
      "use "
      "fewer ranks or smaller batches",
      who, order.here().id, order.job.memory_per_node.value_or(""));
}

void blame_kills(const WorkOrder& order, orders::ExitRecord& record, std::int64_t kills) {
  resources::ResourceError& error = *record.error;
  error.message += "; " + words_about_kills(order, error, kills);
  const auto reason = error.details.find("reason");
  const bool had_no_room = reason != error.details.end() && reason->second == orders::kNoRoom;
  if (error.code != resources::error_code::kInternal || had_no_room) return;
  error.code = resources::error_code::kJobFailed;
  error.details.erase("reason");
  record.exit_code = 128 + SIGKILL;
}

JobLimits::JobLimits(const fs::path& root, const WorkOrder& order)
    : root_(root), order_(order), wanted_(limits_of(order.job)), prefix_(prefix_of(root)) {}

std::vector<std::string> JobLimits::make() {
  if (!wanted_.cores && !wanted_.memory_bytes) return {};
  std::vector<std::string> sentences;
  const auto limit = [&](CgroupController controller, std::uint64_t value, fs::path& folder, const LimitsWanted& one) {
    try {
      if (::geteuid() != 0) throw Error(ErrorCode::kUnsupported, "only a server that root runs can limit its jobs");
      folder = make_cgroup(controller, prefix_ + order_.attempt, value);
    } catch (const Error& error) {
      for (std::string& sentence : not_enforced(
               one, usable_cores(), memory_limit(cgroups_of(::getpid(), CgroupController::kMemory)), error.what())) {
        sentences.push_back(std::move(sentence));
      }
    }
  };
  remove_limits(root_, order_.attempt);  // A node has one attempt at a time.
  if (wanted_.cores) {
    limit(CgroupController::kCpu, static_cast<std::uint64_t>(*wanted_.cores), cores_, {.cores = wanted_.cores});
  }
  if (wanted_.memory_bytes) {
    limit(CgroupController::kMemory, *wanted_.memory_bytes, memory_, {.memory_bytes = wanted_.memory_bytes});
  }
  return sentences;
}

void remove_limits(const fs::path& root, const std::string& spared) {
  if (::geteuid() != 0) return;
  const std::string prefix = prefix_of(root);
  std::error_code ignored;
  for (const CgroupController controller : {CgroupController::kMemory, CgroupController::kCpu}) {
    for (const fs::path& parent : cgroups_of(::getpid(), controller)) {
      for (const auto& entry : fs::directory_iterator(parent, ignored)) {
        const std::string name = entry.path().filename();
        if (!name.starts_with(prefix) || (!spared.empty() && name == prefix + spared)) continue;
        try {
          remove_cgroup(entry.path(), Deadline::after(kLongestRemoval));
        } catch (const Error&) {
          continue;
        }
      }
    }
  }
}

std::vector<std::string> JobLimits::cgroups() const {
  std::vector<std::string> folders;
  for (const fs::path& folder : {memory_, cores_}) {
    if (!folder.empty() && std::ranges::find(folders, folder.string()) == folders.end()) folders.push_back(folder);
  }
  return folders;
}

std::int64_t JobLimits::kills() const { return memory_.empty() ? 0 : memory_kills(memory_); }

void JobLimits::remove() {
  for (const std::string& folder : cgroups()) remove_cgroup(folder, Deadline::after(kLongestRemoval));
  memory_.clear();
  cores_.clear();
}

}  // namespace gyre::jobs::node::internal
