#include "gyre/jobs/containers/podman.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/containers/internal/build_place.h"
#include "gyre/jobs/containers/internal/contained_processes.h"
#include "gyre/jobs/containers/internal/podman_commands.h"
#include "gyre/jobs/containers/internal/podman_words.h"
#include "gyre/jobs/containers/internal/program_run.h"

namespace gyre::jobs::containers {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::minutes kLongestCall{2};
/// Programs of builds start below it, whichever account they have; `storage` may be where only root comes.
constexpr const char* kBuilds = "/var/lib/gyre/builds";
constexpr const char* kMetacopy = "/sys/module/overlay/parameters/metacopy";  // Not there: the kernel has no such.
constexpr const char* kImagesOfMachine = "/var/lib/containers/storage";
constexpr const char* kImageList = "overlay-images/images.json";  // Of a storage.

std::uint64_t limit_of(decltype(RLIMIT_NOFILE) resource, std::uint64_t most) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return 1024;
  return std::min<std::uint64_t>(limit.rlim_max, most);
}

/// Podman takes at most so many; more than our own it could not set.
internal::Limits limits_of_ours() {
  constexpr std::uint64_t kMostFiles = 1 << 20;
  constexpr std::uint64_t kMostProcesses = 1 << 15;
  return {.files = limit_of(RLIMIT_NOFILE, kMostFiles), .processes = limit_of(RLIMIT_NPROC, kMostProcesses)};
}

/// "key" of kBuiltImages + key.
std::string key_of(const std::string& name) { return name.substr(name.rfind(':') + 1); }

}  // namespace

Podman::Podman(fs::path storage, std::vector<std::string> environment)
    : ProgramRuntime(
          "podman",
          "/run/gyre-containers/" + hex(sha256(as_bytes(storage.native()))).substr(0, 16),  // Podman wants it short.
          std::move(environment)),
      storage_(std::move(storage)),
      uses_(storage_ / "uses"),
      notes_(state() / "images.json", {storage_ / "root" / kImageList, fs::path(kImagesOfMachine) / kImageList}),
      built_bytes_(built_image_bytes(this->environment())) {
  std::erase_if(this->environment(), [](const std::string& entry) { return entry.starts_with("CONTAINERS_"); });
  this->environment().push_back("CONTAINERS_CONF=" + (state() / "containers.conf").string());
  prepare();
}

void Podman::prepare() {
  for (const fs::path& folder : {storage_, state() / "run" / "overlay"}) {
    std::error_code failure;
    fs::create_directories(folder, failure);
    if (failure) throw system_error(fmt::format("cannot make {}", folder.string()), failure.value());
  }
  // Podman 4.3 gives an image's files to the container's accounts and then has the kernel do so once more; with this
  // note it believes that the kernel cannot (ADR 130).
  const fs::path notes = state() / "run/overlay";
  std::error_code ignored;
  fs::remove(notes / "idmapped-lower-dir-true", ignored);
  const UniqueFd note(::open((notes / "idmapped-lower-dir-false").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  try {
    low_runtime_ = find_command("runc", variable_of(environment(), "PATH"));
  } catch (const SpawnError&) {
    low_runtime_ = "crun";  // Podman's own choice.
  }
  const bool runc = low_runtime_ != "crun";
  write_file_atomically(state() / "containers.conf", as_bytes(internal::settings_file(limits_of_ours(), runc)));
}

std::string Podman::shared_images() const {
  const std::string images = fs::path(kImagesOfMachine) / "overlay-images";
  return ::access(images.c_str(), R_OK) == 0 ? kImagesOfMachine : "";
}

std::vector<std::string> Podman::before_verb() const {
  return internal::storage_arguments(storage_, state(), shared_images(), ::access(kMetacopy, F_OK) == 0);
}

Podman::Pull Podman::pull(const std::string& place, const internal::Credentials& credentials) const {
  return {internal::pull_arguments(place, credentials.file()), {}};
}

Image Podman::pulled(const std::string& place, const std::string& said, const std::string& shown) {
  const std::string id = said.substr(0, said.find('\n'));
  // A digest that was asked for is known; of another one the storage may have heard since.
  const bool has_digest = place.find('@') != std::string::npos;
  if (const auto words = has_digest ? notes_.find_id(id) : std::nullopt) return image_in(*words, shown);
  const auto words = ProgramRuntime::words_of(id);
  if (!words) return {};
  if (has_digest) notes_.keep_id(id, *words);
  return image_in(*words, shown);
}

std::optional<std::string> Podman::words_of(const std::string& image) {
  const std::string state = notes_.state();
  if (auto words = notes_.find(image, state)) return words;
  auto words = ProgramRuntime::words_of(image);
  if (words) notes_.keep(image, state, *words);
  return words;
}

std::optional<Image> Podman::built(const std::string& name) {
  hold(key_of(name));
  return ProgramRuntime::built(name);
}

/// They would run unseen.
void Podman::refuse_triggers(const std::string& image) {
  internal::ProgramOutput found;
  try {
    found = internal::run_program(internal::configuration_arguments(storage_, state(), shared_images(), image),
                                  environment(), Deadline::after(kLongestCall), {});
  } catch (const SpawnError&) {
    throw Error(ErrorCode::kUnsupported,
                "this machine has no skopeo, which looks into the images of FROM (`apt-get install skopeo`)");
  }
  if (!found.status.success()) {
    throw Error(ErrorCode::kIo, fmt::format("skopeo cannot read an image of FROM: {}", cli::printable(found.error)));
  }
  if (!internal::has_triggers(found.out)) return;
  throw Error(ErrorCode::kInvalidArgument, "an image of FROM has ONBUILD instructions, which are not supported");
}

/// Until this object goes, by which time the container runs.
void Podman::hold(const std::string& key) {
  const MutexLock lock(mutex_);
  UniqueFd& held = held_[key];
  if (!held) held = uses_.use(key);
}

/// Podman itself refuses to remove an image that a container has.
void Podman::make_room() {
  const internal::ProgramOutput listed =
      call({"images", "--filter", "reference=localhost/gyre-built", "--format", "json"});
  if (!listed.status.success()) return;
  std::vector<internal::BuiltImage> images = internal::built_images_of(listed.out);
  std::uint64_t bytes = 0;
  for (internal::BuiltImage& image : images) {
    image.used = uses_.last_use(image.key);
    bytes += image.bytes;
  }
  std::ranges::sort(images, {}, &internal::BuiltImage::used);
  for (const internal::BuiltImage& image : images) {
    if (bytes <= built_bytes_) return;
    const UniqueFd taken = uses_.take(image.key);
    if (!taken || !call({"rmi", kBuiltImages + image.key}).status.success()) continue;
    uses_.forget(image.key);
    bytes -= image.bytes;
  }
}

/// Podman names them after images; ours, which jobs run in, begin otherwise.
void Podman::remove_build_containers() {
  const internal::ProgramOutput listed = call({"ps", "--all", "--external", "--format", "{{.ID}} {{.Names}}"});
  std::istringstream lines(listed.out);
  for (std::string id, name; lines >> id && std::getline(lines, name);) {
    if (name.find("-working-container") != std::string::npos) call({"rm", "--force", "--time", "0", id});
  }
}

Image Podman::build(const ImageBuild& build, const Interruption& interruption,
                    const std::function<void(const std::string&)>& output) {
  constexpr std::size_t kMostLines = 100;
  const std::string key = key_of(build.name);
  const UniqueFd lock = internal::open_lock(state() / fmt::format("build-{}.lock", key));
  internal::lock_file(lock, LOCK_EX, interruption);
  if (auto image = built(build.name)) return *std::move(image);
  for (const std::string& base : build.bases) refuse_triggers(base);
  const fs::path file = state() / fmt::format("build-{}.dockerfile", key);
  write_file_atomically(file, as_bytes(build.dockerfile));
  const internal::BuildPlace place(
      fs::path(kBuilds) / state().filename(), state() / "builds.lock", key, {low_runtime_, environment()},
      [this] { remove_build_containers(); }, interruption);
  // Podman does not end the program of a RUN with itself; when that dies, it cleans up and ends.
  std::optional<Deadline> limit;
  const auto end = [&](pid_t podman) {
    if (!limit) limit = Deadline::after(kLongestCall);
    internal::kill_contained(podman);
    return limit->passed();
  };
  const internal::ProgramOutput made =
      call(internal::build_arguments(build, file), interruption, end, {"TMPDIR=" + place.folder().string()});
  if (limit) throw Error(ErrorCode::kAborted, "the build was given up");
  std::error_code ignored;
  fs::remove(file, ignored);
  if (made.status.signal != 0) {
    throw Error(ErrorCode::kIo, fmt::format("podman, which built the image, was killed by {}; perhaps the machine has "
                                            "too little memory",
                                            signal_name(made.status.signal)));
  }
  if (!made.status.success()) {
    output(internal::last_lines(made.out, kMostLines) + "\n" + internal::last_lines(made.error, kMostLines));
    throw internal::build_error(made.out, made.error);
  }
  auto image = built(build.name);
  if (!image) throw Error(ErrorCode::kIo, "podman has lost the image that it has built");
  make_room();
  return *std::move(image);
}

pid_t Podman::start(const Container& container, const Interruption& interruption) {
  const fs::path number = state() / (container.name + ".pid");
  const internal::ProgramOutput started = call(internal::run_arguments(container, number.string()), interruption);
  if (started.status.success()) {
    pid_t process = 0;
    std::ifstream(number) >> process;
    std::error_code ignored;
    fs::remove(number, ignored);
    if (process > 0) return process;
    throw Error(ErrorCode::kIo, "the container ended as soon as it had begun");
  }
  if (started.error.find("no space left on device") != std::string::npos) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("the disk of {} is full; make room, or remove images", storage_.string()));
  }
  throw failure("cannot start the container", started.error);
}

bool Podman::try_removal(const std::string& name) {
  const internal::ProgramOutput removed = call({"rm", "--force", "--ignore", "--time", "0", name});
  if (removed.status.success()) return true;
  throw failure(fmt::format("cannot remove the container {}", name), removed.error);
}

}  // namespace gyre::jobs::containers
