#include "gyre/jobs/containers/docker.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/containers/internal/build_place.h"
#include "gyre/jobs/containers/internal/container_places.h"
#include "gyre/jobs/containers/internal/docker_commands.h"
#include "gyre/jobs/containers/internal/image_copy.h"
#include "gyre/jobs/containers/internal/podman_commands.h"

namespace gyre::jobs::containers {

namespace {

using internal::ProgramOutput;

constexpr const char* kState = "/run/gyre-containers/docker";
constexpr std::chrono::hours kLongestCopy{2};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Docker::Docker(std::vector<std::string> environment) : ProgramRuntime("docker", kState, std::move(environment)) {}

std::string Docker::name_of_registry(const std::string& registry) const {
  return registry == "docker.io" ? "https://index.docker.io/v1/" : registry;
}

Docker::Pull Docker::pull(const std::string& place, const internal::Credentials& credentials) const {
  Pull words{.arguments = {"pull", place}, .environment = {}};
  if (!credentials.folder().empty()) words.environment = {"DOCKER_CONFIG=" + credentials.folder()};
  return words;
}

Image Docker::pulled(const std::string& place, const std::string& said, const std::string& shown) {
  Image image = inspect(place, shown);
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kDigest = "Digest: ";
    if (line.starts_with(kDigest)) image.digest = line.substr(kDigest.size());
  }
  return image;
}

Image Docker::build(const ImageBuild& /*build*/, const Interruption& /*interruption*/,
                    const std::function<void(const std::string&)>& /*output*/) {
  throw Error(ErrorCode::kUnsupported,
              "images of jobs are built by podman, and this machine's containers are docker's; install it (`apt-get "
              "install podman runc skopeo`)");
}

void Docker::check_daemon() {
  const ProgramOutput asked = call({"info", "--format", "{{json .SecurityOptions}}"});
  if (!asked.status.success()) throw failure("does not answer", asked.error);
  for (const char* kind : {"rootless", "userns"}) {
    if (asked.out.find(std::string("name=") + kind) == std::string::npos) continue;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("docker's daemon here has accounts of its own for containers ({}), and jobs need those of "
                            "the machine; use podman (`apt-get install podman runc`)",
                            kind));
  }
}

std::vector<std::string> Docker::variables_of(const std::string& image) {
  const ProgramOutput found = call({"image", "inspect", "--format", "{{json .Config.Env}}", image});
  if (!found.status.success()) throw failure("cannot look into an image", found.error);
  const nlohmann::json variables = nlohmann::json::parse(found.out, nullptr, false);
  return variables.is_array() ? variables.get<std::vector<std::string>>() : std::vector<std::string>();
}

void Docker::copy_image(const std::string& source, const std::string& name, const UserId& root,
                        const Interruption& interruption) {
  internal::TarOwners owners(
      [&](std::uint64_t user) { return internal::account_outside(user, root.user, root.user); },
      [&](std::uint64_t group) { return internal::account_outside(group, root.group, root.user); });
  const internal::ArchivePipe pipe{
      .from = {"docker", "export", source}, .to = {"docker", "import", "-", name}, .environment = environment()};
  const std::string failed = internal::pass_archive(pipe, owners, Deadline::after(kLongestCopy), interruption);
  if (failed.empty()) return;
  if (failed.find("no space left on device") != std::string::npos) {
    throw Error(ErrorCode::kResourceExhausted, "the disk of docker is full; make room, or remove images");
  }
  throw failure("cannot give the image to the job's account", failed);
}

std::string Docker::owned_image(const Container& container, const Interruption& interruption) {
  const std::string id = container.image_id.substr(container.image_id.find(':') + 1);
  const std::string key = fmt::format("account-{}-{}-{}", container.root.user, container.root.group, id);
  const std::string name = kBuiltImages + key;
  const UniqueFd lock = internal::open_lock(state() / (key + ".lock"));
  internal::lock_file(lock, LOCK_EX, interruption);
  if (const auto image = built(name)) return image->id;
  const ProgramOutput made = call(internal::docker_create_arguments(container));
  if (!made.status.success()) throw failure("cannot open the image", made.error);
  const std::string source = first_line(made.out);
  try {
    copy_image(source, name, container.root, interruption);
  } catch (const Error&) {
    remove(source);
    throw;
  }
  remove(source);
  const auto image = built(name);
  if (!image) throw Error(ErrorCode::kIo, "docker has lost the image of the job's account");
  return image->id;
}

pid_t Docker::start(const Container& container, const Interruption& interruption) {
  check_daemon();
  const std::string image = owned_image(container, interruption);
  const ProgramOutput started =
      call(internal::docker_run_arguments(container, image, variables_of(container.image_id)), interruption);
  if (!started.status.success()) throw failure("cannot start the container", started.error);
  try {
    const auto process = process_of(container.name);
    if (!process) throw Error(ErrorCode::kIo, "the container ended as soon as it had begun");
    internal::show_places(*process, container.places, container.root);
    return *process;
  } catch (const Error&) {
    remove(container.name);
    throw;
  }
}

bool Docker::try_removal(const std::string& name) {
  const ProgramOutput removed = call({"rm", "--force", "--volumes", name});
  if (removed.status.success() || removed.error.find("No such container") != std::string::npos) return true;
  if (removed.error.find("already in progress") != std::string::npos) return false;
  throw failure(fmt::format("cannot remove the container {}", name), removed.error);
}

}  // namespace gyre::jobs::containers
