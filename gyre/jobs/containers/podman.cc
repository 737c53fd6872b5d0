#include "gyre/jobs/containers/podman.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
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

constexpr std::chrono::hours kLongestFetch{2};
constexpr std::chrono::minutes kLongestCall{2};
constexpr std::chrono::seconds kLongestQuestion{15};  // Somebody who submits a job waits for the answer.
/// Programs of builds start below it, whichever account they have; `storage` may be where only root comes.
constexpr const char* kBuilds = "/var/lib/gyre/builds";
constexpr const char* kImagesOfMachine = "/var/lib/containers/storage";

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

void check_architecture(const std::string& image, const std::string& architecture) {
  utsname machine{};
  ::uname(&machine);
  const std::string own = internal::architecture_of_images(machine.machine);
  if (architecture == own) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("the image {} is for {} processors, and this machine has {}", image, architecture, own));
}

/// Readable by root alone, and gone with this object.
class CredentialsFile {
 public:
  CredentialsFile(const fs::path& folder, const ImageName& name) {
    if (name.user.empty()) return;
    path_ = (folder / "credentials-XXXXXX").string();
    const UniqueFd file(::mkostemp(path_.data(), O_CLOEXEC));
    if (!file) throw system_error(fmt::format("cannot write {}", path_), errno);
    const std::string registry = internal::registry_of(internal::full_name(name));
    write_all(file.get(), as_bytes(internal::credentials_file(registry, name.user, name.password)), path_);
  }
  ~CredentialsFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  CredentialsFile(const CredentialsFile&) = delete;
  CredentialsFile& operator=(const CredentialsFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Of one account, by whatever part of its name.
bool is_built(std::string_view full_name) {
  return full_name.starts_with(std::string_view(kBuiltImages).substr(0, std::string_view(kBuiltImages).size() - 1));
}

}  // namespace

struct Podman::Outcome : internal::ProgramOutput {};

Podman::Podman(fs::path storage, std::vector<std::string> environment)
    : storage_(std::move(storage)),
      state_("/run/gyre-containers/" +
             hex(sha256(as_bytes(storage_.native()))).substr(0, 16)),  // Podman wants it short.
      environment_(std::move(environment)) {
  std::erase_if(environment_, [](const std::string& entry) { return entry.starts_with("CONTAINERS_"); });
  environment_.push_back("CONTAINERS_CONF=" + (state_ / "containers.conf").string());
  prepare();
}

void Podman::prepare() {
  for (const fs::path& folder : {storage_, state_, state_ / "run" / "overlay"}) {
    std::error_code failure;
    fs::create_directories(folder, failure);
    if (failure) throw system_error(fmt::format("cannot make {}", folder.string()), failure.value());
  }
  fs::permissions(state_, fs::perms::owner_all);
  // Podman 4.3 gives an image's files to the container's accounts and then has the kernel do so once more; with this
  // note it believes that the kernel cannot (ADR 130).
  const fs::path notes = state_ / "run/overlay";
  std::error_code ignored;
  fs::remove(notes / "idmapped-lower-dir-true", ignored);
  const UniqueFd note(::open((notes / "idmapped-lower-dir-false").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  try {
    low_runtime_ = find_command("runc", variable_of(environment_, "PATH"));
  } catch (const SpawnError&) {
    low_runtime_ = "crun";  // Podman's own choice.
  }
  const bool runc = low_runtime_ != "crun";
  write_file_atomically(state_ / "containers.conf", as_bytes(internal::settings_file(limits_of_ours(), runc)));
}

std::string Podman::shared_images() const {
  const std::string images = fs::path(kImagesOfMachine) / "overlay-images";
  return ::access(images.c_str(), R_OK) == 0 ? kImagesOfMachine : "";
}

Podman::Outcome Podman::call(const std::vector<std::string>& arguments, const Interruption& interruption,
                             const std::function<bool(pid_t)>& end, const fs::path& temporary) {
  std::vector<std::string> argv = internal::storage_arguments(storage_, state_, shared_images());
  argv.insert(argv.begin(), "podman");
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const bool fetches = arguments.front() == "pull" || arguments.front() == "build";
  const Deadline deadline = Deadline::after(fetches ? std::chrono::minutes(kLongestFetch) : kLongestCall);
  std::vector<std::string> environment = environment_;
  if (!temporary.empty()) environment.push_back("TMPDIR=" + temporary.string());
  return {internal::run_program(argv, environment, deadline, interruption, end)};
}

Image Podman::inspect(const std::string& image, const std::string& shown) {
  const Outcome found = call({"image", "inspect", "--format", "{{.Id}} {{.Architecture}} {{.Digest}}", image});
  if (!found.status.success()) return {};
  std::istringstream words(found.out);
  Image result{.id = {}, .name = shown, .digest = {}};
  std::string architecture;
  words >> result.id >> architecture >> result.digest;
  check_architecture(shown, architecture);
  return result;
}

Image Podman::local_image(const ImageName& name) {
  if (!name.server.empty() || !name.digest.empty()) return {};
  const std::string local = name.image.starts_with("localhost/") ? name.image : "localhost/" + name.image;
  if (is_built(local)) return {};
  Image own = inspect(local, local);
  own.digest.clear();
  return own;
}

std::optional<std::string> digest_in_registry(const ImageName& name, const fs::path& folder,
                                              const std::vector<std::string>& environment) {
  const std::string full = internal::full_name(name);
  if (internal::registry_of(full) == "localhost") return std::nullopt;
  const CredentialsFile credentials(folder, name);
  const std::size_t at = full.find('@');  // Then it says already what the registry will.
  const std::string place = at == std::string::npos ? full : internal::with_digest(full, full.substr(at + 1));
  std::vector<std::string> argv = internal::digest_arguments(place, credentials.path());
  internal::ProgramOutput answer;
  try {
    answer = internal::run_program(argv, environment, Deadline::after(kLongestQuestion), {});
  } catch (const SpawnError&) {
    throw Error(ErrorCode::kIo,
                "this machine has no skopeo, which asks registries for digests (`apt-get install skopeo`)");
  }
  if (!answer.status.success()) throw internal::fetch_error(name, answer.error);
  std::istringstream words(answer.out);
  std::string digest;
  std::string architecture;
  words >> digest >> architecture;
  check_architecture(full, architecture);
  return digest;
}

std::optional<std::string> Podman::digest_of(const ImageName& name) {
  if (!local_image(name).id.empty()) return std::nullopt;
  return digest_in_registry(name, state_, environment_);
}

Image Podman::fetch(const ImageName& name, const Interruption& interruption) {
  if (Image own = local_image(name); !own.id.empty()) return own;
  const std::string full = internal::full_name(name);
  if (is_built(full)) throw Error(ErrorCode::kNotFound, fmt::format("{} is an image of one job's nodes alone", full));
  const CredentialsFile credentials(state_, name);
  const std::string place = internal::with_digest(full, name.digest);
  const Outcome fetched = call(internal::pull_arguments(place, credentials.path()), interruption);
  if (!fetched.status.success()) throw internal::fetch_error(name, fetched.error);
  std::string id = fetched.out.substr(0, fetched.out.find('\n'));
  Image image = inspect(id, full);
  if (image.id.empty()) throw Error(ErrorCode::kIo, fmt::format("podman has lost the image {}", full));
  if (!name.digest.empty()) image.digest = name.digest;  // Of an index it is another than its image's here.
  return image;
}

std::optional<Image> Podman::built(const std::string& name) {
  Image image = inspect(name, name);
  if (image.id.empty()) return std::nullopt;
  image.digest.clear();
  return image;
}

/// They would run unseen.
void Podman::refuse_triggers(const std::string& image) {
  internal::ProgramOutput found;
  try {
    found = internal::run_program(internal::configuration_arguments(storage_, state_, shared_images(), image),
                                  environment_, Deadline::after(kLongestCall), {});
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

/// Podman names them after images; ours, which jobs run in, begin otherwise.
void Podman::remove_build_containers() {
  const Outcome listed = call({"ps", "--all", "--external", "--format", "{{.ID}} {{.Names}}"});
  std::istringstream lines(listed.out);
  for (std::string id, name; lines >> id && std::getline(lines, name);) {
    if (name.find("-working-container") != std::string::npos) call({"rm", "--force", "--time", "0", id});
  }
}

Image Podman::build(const ImageBuild& build, const Interruption& interruption,
                    const std::function<void(const std::string&)>& output) {
  constexpr std::size_t kMostLines = 100;
  const std::string key = build.name.substr(build.name.rfind(':') + 1);
  const UniqueFd lock = internal::open_lock(state_ / fmt::format("build-{}.lock", key));
  internal::lock_file(lock, LOCK_EX, interruption);
  if (auto image = built(build.name)) return *std::move(image);
  for (const std::string& base : build.bases) refuse_triggers(base);
  const fs::path file = state_ / fmt::format("build-{}.dockerfile", key);
  write_file_atomically(file, as_bytes(build.dockerfile));
  const internal::BuildPlace place(
      fs::path(kBuilds) / state_.filename(), state_ / "builds.lock", key, {low_runtime_, environment_},
      [this] { remove_build_containers(); }, interruption);
  // Podman does not end the program of a RUN with itself; when that dies, it cleans up and ends.
  std::optional<Deadline> limit;
  const auto end = [&](pid_t podman) {
    if (!limit) limit = Deadline::after(kLongestCall);
    internal::kill_contained(podman);
    return limit->passed();
  };
  const Outcome made = call(internal::build_arguments(build, file), interruption, end, place.folder());
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
  return *std::move(image);
}

void Podman::start(const Container& container) {
  const Outcome started = call(internal::run_arguments(container));
  if (started.status.success()) return;
  if (started.error.find("no space left on device") != std::string::npos) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("the disk of {} is full; make room, or remove images", storage_.string()));
  }
  throw Error(ErrorCode::kIo,
              fmt::format("podman cannot start the container: {}", internal::words_of_podman(started.error)));
}

bool Podman::runs(const std::string& name) {
  const Outcome found = call({"container", "inspect", "--format", "{{.State.Running}}", name});
  return found.status.success() && found.out.starts_with("true");
}

std::optional<pid_t> Podman::process_of(const std::string& name) {
  const Outcome found = call({"container", "inspect", "--format", "{{.State.Pid}}", name});
  pid_t process = 0;
  return found.status.success() && std::istringstream(found.out) >> process && process > 0 ? std::optional(process)
                                                                                           : std::nullopt;
}

void Podman::remove(const std::string& name) {
  const Outcome removed = call({"rm", "--force", "--ignore", "--time", "0", name});
  if (removed.status.success()) return;
  throw Error(ErrorCode::kIo,
              fmt::format("podman cannot remove the container {}: {}", name, internal::words_of_podman(removed.error)));
}

std::vector<std::string> Podman::with_label(const std::string& label, const std::string& value) {
  const Outcome listed =
      call({"ps", "--all", "--filter", fmt::format("label={}={}", label, value), "--format", "{{.Names}}"});
  std::vector<std::string> names;
  std::istringstream lines(listed.out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) names.push_back(line);
  }
  return names;
}

}  // namespace gyre::jobs::containers
