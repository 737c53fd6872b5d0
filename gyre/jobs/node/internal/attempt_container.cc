#include "gyre/jobs/node/internal/attempt_container.h"

#include <fmt/format.h>
#include <sys/sysinfo.h>

#include <algorithm>

#include "gyre/base/error.h"
#include "gyre/jobs/containers/program_files.h"
#include "gyre/jobs/node/container_holder.h"
#include "gyre/jobs/node/internal/attempt_ends.h"
#include "gyre/jobs/node/internal/attempt_program.h"
#include "gyre/jobs/node/internal/cleanliness.h"

namespace gyre::jobs::node::internal {

using containers::BindMount;
using orders::WorkOrder;

namespace {

namespace fs = std::filesystem;

constexpr const char* kNodeLabel = "gyre.node";
constexpr const char* kAttemptLabel = "gyre.attempt";

containers::ImageName image_of(const WorkOrder& order) {
  const spec::ContainerSettings& settings = *order.job.container_settings;
  containers::ImageName name{
      .image = settings.image, .server = settings.server_url.value_or(""), .user = {}, .password = {}};
  if (settings.credentials) {
    name.user = settings.credentials->username;
    name.password = settings.credentials->password.text.value_or("");
  }
  return name;
}

std::uint64_t memory_of_machine() {
  struct sysinfo info{};
  return ::sysinfo(&info) == 0 ? std::uint64_t{info.totalram} * info.mem_unit : 0;
}

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
  container.labels = {{kNodeLabel, options_.root.string()}, {kAttemptLabel, order_.attempt}};
  container.root = options_.user->id;
  container.mounts = places();
  for (BindMount& mount : containers::program_mounts(program)) container.mounts.push_back(std::move(mount));
  container.memory_bytes =
      containers::shared_memory_size(order_.job.container_settings->shm_size.value_or(""), memory_of_machine());
  container.command = {containers::kProgramInContainer, "hold", "--socket", door().socket.string()};
  // By which the process is found when the node is given up.
  container.environment = {{kContainerVariable, options_.root.string()}};
  return container;
}

std::string AttemptContainer::start(const containers::Interruption& interruption) {
  const std::string& node = order_.here().id;
  try {
    if (!options_.user || options_.mounts != MountMethod::kBind) {
      throw Error(ErrorCode::kUnsupported,
                  "the server must run as root, on a machine that lets it mount folders; start it so, or run such "
                  "jobs on the host (`gyre cluster create --containers-on-host`)");
    }
    for (const std::string& left : runtime().with_label(kNodeLabel, options_.root.string())) runtime().remove(left);
    const containers::Image image = runtime().fetch(image_of(order_), interruption);
    runtime().start(description(image));
    return fmt::format("node {}: the job runs in a container of {}{}", node, image.name,
                       image.digest.empty() ? "" : "@" + image.digest);
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

bool AttemptContainer::can_be() {
  if (!options_.user) return false;
  try {
    runtime();
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) return false;
    throw;
  }
}

bool AttemptContainer::runs() { return can_be() && runtime().runs(name_); }

void AttemptContainer::remove() {
  if (can_be()) runtime().remove(name_);
}

}  // namespace gyre::jobs::node::internal
