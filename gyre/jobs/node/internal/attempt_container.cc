#include "gyre/jobs/node/internal/attempt_container.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>

#include "gyre/base/cgroup.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/containers/program_files.h"
#include "gyre/jobs/node/container.h"
#include "gyre/jobs/node/container_holder.h"
#include "gyre/jobs/node/internal/attempt_ends.h"
#include "gyre/jobs/node/internal/attempt_program.h"
#include "gyre/jobs/node/internal/cleanliness.h"
#include "gyre/jobs/node/internal/image_maker.h"
#include "gyre/jobs/node/internal/job_limits.h"

namespace gyre::jobs::node::internal {

using containers::BindMount;
using orders::WorkOrder;

namespace {

namespace fs = std::filesystem;

constexpr const char* kNodeLabel = "gyre.node";
constexpr const char* kAttemptLabel = "gyre.attempt";

bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto [end, ignored] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

}  // namespace

bool runs_in_container(const WorkOrder& order) {
  return order.job.container_settings && order.cluster.gyre.containers == spec::Containers::kContainer;
}

AttemptContainer::AttemptContainer(const NodeOptions& options, const WorkOrder& order)
    : options_(options),
      order_(order),
      folders_(options.root, options.own),
      name_(fmt::format("gyre-{}-{}", order.attempt, order.here().id)) {}

containers::ContainerRuntime& AttemptContainer::runtime() {
  if (!runtime_) runtime_ = containers::find_runtime(options_.containers, options_.runtime_environment);
  return *runtime_;
}

ContainerDoor AttemptContainer::door() const {
  return {attempt_program(options_.gyre_program), folders_.socket("hold")};
}

/// Nodes of one machine may have the same path, in mount namespaces of their own.
std::string AttemptContainer::node_label() const {
  return fmt::format("{} {}", order_.here().id, options_.root.string());
}

/// All of them under the paths that they have outside.
std::vector<BindMount> AttemptContainer::places() const {
  std::vector<BindMount> mounts = {{options_.root, options_.root}};
  for (const fs::path& place :
       {mount_root(order_, folders_), job_mount_root(order_, folders_), jobs_root(order_, folders_),
        fs::path(order_.shared_folder), temporary_folder(order_.attempt)}) {
    const bool seen = std::ranges::any_of(mounts, [&](const BindMount& mount) { return lies_in(place, mount.target); });
    if (!seen) mounts.push_back({place, place});
  }
  return mounts;
}

containers::Container AttemptContainer::description(const containers::Image& image) const {
  const fs::path program = fs::path(attempt_program(options_.gyre_program)).replace_filename("gyre-node-contained");
  containers::Container container;
  container.name = name_;
  container.image_id = image.id;
  container.labels = {{kNodeLabel, node_label()}, {kAttemptLabel, order_.attempt}};
  container.root = options_.user->id;
  container.places = places();
  container.program = containers::program_mounts(program);
  const LimitsWanted limits = limits_of(order_.job);
  const std::uint64_t machine = containers::memory_of_machine();
  container.cores = limits.cores;
  container.memory_bytes = limits.memory_bytes;
  container.shared_memory_bytes = containers::shared_memory_size(
      order_.job.container_settings->shm_size.value_or(""), std::min(machine, limits.memory_bytes.value_or(machine)));
  container.command = {containers::kProgramInContainer, "hold", "--socket", door().socket.string()};
  // By which the process is found when the node is given up.
  container.environment = {{kContainerVariable, options_.root.string()}};
  return container;
}

containers::Image AttemptContainer::image(const UniqueFd& code, const containers::Interruption& interruption,
                                          const std::function<void(const std::string&)>& say,
                                          const std::function<void(const std::string&)>& log) {
  const spec::ContainerSettings& settings = *order_.job.container_settings;
  if (settings.build) {
    const ImageMaking making{order_, options_.user->id, code.get(), NodeFolders(options_.root).own() / "image"};
    return made_image(runtime(), making, interruption, say, log);
  }
  if (!settings.digest.empty()) say(fmt::format("node {}: fetches the image {}", order_.here().id, settings.image));
  return runtime().fetch(image_of(settings), interruption);
}

void AttemptContainer::start(const UniqueFd& code, const containers::Interruption& interruption,
                             const std::function<void(const std::string&)>& say,
                             const std::function<void(const std::string&)>& log) {
  const std::string& node = order_.here().id;
  try {
    if (!options_.user || options_.mounts != MountMethod::kBind) {
      throw Error(ErrorCode::kUnsupported,
                  "Gyre must be root on it, and be allowed to mount folders: by a server that root runs, or, on hosts "
                  "with ssh, by logging in as root; or run such jobs on the host (`gyre cluster create "
                  "--containers-on-host`)");
    }
    if (can_be_there_ || fs::exists(folders_.container_begun())) {
      for (const std::string& left : runtime().with_label(kNodeLabel, node_label())) runtime().remove(left);
    }
    const auto asked = SteadyClock::now();
    const containers::Image image = this->image(code, interruption, say, log);
    const auto fetched = SteadyClock::now();
    const containers::Container wanted = description(image);
    const fs::path mark = folders_.container_begun();
    if (!UniqueFd(::open(mark.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600))) {
      throw system_error(fmt::format("cannot make {}", mark.string()), errno);
    }
    can_be_there_ = true;
    const pid_t process = runtime().start(wanted, interruption);
    find_count(process);
    const auto seconds = [](SteadyClock::time_point from, SteadyClock::time_point to) {
      return std::chrono::duration<double>(to - from).count();
    };
    const bool may_change = order_.job.container_settings->digest.empty() && !image.digest.empty();
    say(fmt::format("node {}: the job runs in a container of {}{}: the image took {:.1f} s, its start {:.1f} s{}", node,
                    image.name, image.digest.empty() ? "" : "@" + image.digest, seconds(asked, fetched),
                    seconds(fetched, SteadyClock::now()),
                    may_change ? " (what the registry had under this name now: when the job was submitted it was not "
                                 "asked for a digest)"
                               : ""));
    for (const std::string& sentence : missing_limits(process)) say(sentence);
  } catch (const Error& error) {
    const std::string sentence = fmt::format("node {} cannot run the job's container: {}", node, error.what());
    switch (error.code()) {
      case ErrorCode::kNotFound:
      case ErrorCode::kAuthentication:
      case ErrorCode::kUnsupported:
      case ErrorCode::kInvalidArgument: break;
      default: throw Error(error.code(), sentence);  // Of the machine: it may go away.
    }
    AttemptEnds end = internal_failure(order_, sentence);
    end.error->code = resources::error_code::kContainer;
    throw end;
  }
}

std::vector<std::string> AttemptContainer::missing_limits(pid_t process) const {
  const LimitsWanted wanted = limits_of(order_.job);
  if (!wanted.cores && !wanted.memory_bytes) return {};
  if (::kill(process, 0) != 0) return {};  // It has ended, which is heard of elsewhere.
  std::vector<std::string> sentences = not_enforced(wanted, core_limit(cgroups_of(process, CgroupController::kCpu)),
                                                    memory_limit(cgroups_of(process, CgroupController::kMemory)),
                                                    "this machine's cgroups let podman set none");
  for (std::string& sentence : sentences) sentence = fmt::format("node {}: {}", order_.here().id, sentence);
  return sentences;
}

void AttemptContainer::find_count(pid_t process) {
  const std::vector<fs::path> cgroups = cgroups_of(process, CgroupController::kMemory);
  if (!cgroups.empty()) memory_cgroup_ = cgroups.front();
}

void AttemptContainer::count_kills() {
  if (!memory_cgroup_.empty()) kills_ = std::max(kills_, memory_kills(memory_cgroup_));
}

bool AttemptContainer::can_be() {
  if (!options_.user) return false;
  try {
    runtime();
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kInvalidArgument) return false;
    throw;
  }
}

bool AttemptContainer::runs() {
  if (!can_be_there_ || !can_be()) return false;
  const auto process = runtime().process_of(name_);
  if (process) find_count(*process);
  return process.has_value();
}

void AttemptContainer::remove() {
  if (!can_be_there_ || !can_be()) return;
  runtime().remove(name_);
  std::error_code ignored;
  fs::remove(folders_.container_begun(), ignored);
}

}  // namespace gyre::jobs::node::internal
