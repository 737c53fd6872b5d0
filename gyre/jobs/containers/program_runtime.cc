#include "gyre/jobs/containers/program_runtime.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/utsname.h>

#include <chrono>
#include <sstream>
#include <system_error>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/containers/internal/podman_commands.h"
#include "gyre/jobs/containers/internal/podman_words.h"

namespace gyre::jobs::containers {

namespace {

namespace fs = std::filesystem;
using internal::ProgramOutput;

constexpr std::chrono::hours kLongestFetch{2};
constexpr std::chrono::minutes kLongestCall{2};
constexpr std::chrono::seconds kLongestQuestion{15};  // Somebody who submits a job waits for the answer.
constexpr std::chrono::seconds kLongestRemoval{30};
constexpr int kPauseMs = 50;

void check_architecture(const std::string& image, const std::string& architecture) {
  utsname machine{};
  ::uname(&machine);
  const std::string own = internal::architecture_of_images(machine.machine);
  if (architecture == own) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("the image {} is for {} processors, and this machine has {}", image, architecture, own));
}

/// Of one account, by whatever part of its name.
bool is_built(std::string_view full_name) {
  return full_name.starts_with(std::string_view(kBuiltImages).substr(0, std::string_view(kBuiltImages).size() - 1));
}

}  // namespace

ProgramRuntime::ProgramRuntime(std::string program, fs::path state, std::vector<std::string> environment)
    : program_(std::move(program)), state_(std::move(state)), environment_(std::move(environment)) {
  std::error_code failure;
  fs::create_directories(state_, failure);
  if (failure) throw system_error(fmt::format("cannot make {}", state_.string()), failure.value());
  fs::permissions(state_, fs::perms::owner_all);
}

ProgramOutput ProgramRuntime::call(const std::vector<std::string>& arguments, const Interruption& interruption,
                                   const std::function<bool(pid_t)>& end,
                                   const std::vector<std::string>& more_environment) {
  std::vector<std::string> argv = before_verb();
  argv.insert(argv.begin(), program_);
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const bool is_long = static_cast<bool>(interruption.wanted);
  const Deadline deadline = Deadline::after(is_long ? std::chrono::minutes(kLongestFetch) : kLongestCall);
  std::vector<std::string> environment = environment_;
  environment.insert(environment.end(), more_environment.begin(), more_environment.end());
  return internal::run_program(argv, environment, deadline, interruption, end);
}

Error ProgramRuntime::failure(const std::string& what, const std::string& output) const {
  return {ErrorCode::kIo, fmt::format("{} {}: {}", program_, what, internal::words_of_podman(output))};
}

std::optional<std::string> ProgramRuntime::words_of(const std::string& image) {
  ProgramOutput found = call({"image", "inspect", "--format", image_format(), image});
  return found.status.success() ? std::optional(std::move(found.out)) : std::nullopt;
}

Image ProgramRuntime::image_in(const std::string& words, const std::string& shown) {
  std::istringstream all(words);
  Image result{.id = {}, .name = shown, .digest = {}};
  std::string architecture;
  all >> result.id >> architecture >> result.digest;
  check_architecture(shown, architecture);
  return result;
}

Image ProgramRuntime::inspect(const std::string& image, const std::string& shown) {
  const auto words = words_of(image);
  return words ? image_in(*words, shown) : Image();
}

Image ProgramRuntime::local_image(const ImageName& name) {
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
  const std::string registry = internal::registry_of(full);
  if (registry == "localhost") return std::nullopt;
  const internal::Credentials credentials(folder, name, registry);
  const std::size_t at = full.find('@');  // Then it says already what the registry will.
  const std::string place = at == std::string::npos ? full : internal::with_digest(full, full.substr(at + 1));
  std::vector<std::string> argv = internal::digest_arguments(place, credentials.file());
  ProgramOutput answer;
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

std::optional<std::string> ProgramRuntime::digest_of(const ImageName& name) {
  if (!local_image(name).id.empty()) return std::nullopt;
  if (internal::registry_of(internal::full_name(name)) == "localhost") throw internal::fetch_error(name, "");
  return digest_in_registry(name, state_, environment_);
}

Image ProgramRuntime::fetch(const ImageName& name, const Interruption& interruption) {
  if (Image own = local_image(name); !own.id.empty()) return own;
  const std::string full = internal::full_name(name);
  if (is_built(full)) throw Error(ErrorCode::kNotFound, fmt::format("{} is an image of one job's nodes alone", full));
  const internal::Credentials credentials(state_, name, name_of_registry(internal::registry_of(full)));
  const std::string place = internal::with_digest(full, name.digest);
  const Pull words = pull(place, credentials);
  const ProgramOutput fetched = call(words.arguments, interruption, {}, words.environment);
  if (!fetched.status.success()) throw internal::fetch_error(name, fetched.error);
  Image image = pulled(place, fetched.out, full);
  if (image.id.empty()) throw Error(ErrorCode::kIo, fmt::format("{} has lost the image {}", program_, full));
  if (!name.digest.empty()) image.digest = name.digest;  // Of an index it is another than its image's here.
  return image;
}

std::optional<Image> ProgramRuntime::built(const std::string& name) {
  Image image = inspect(name, name);
  if (image.id.empty()) return std::nullopt;
  image.digest.clear();
  return image;
}

std::optional<pid_t> ProgramRuntime::process_of(const std::string& name) {
  const ProgramOutput found = call({"container", "inspect", "--format", "{{.State.Pid}}", name});
  pid_t process = 0;
  return found.status.success() && std::istringstream(found.out) >> process && process > 0 ? std::optional(process)
                                                                                           : std::nullopt;
}

void ProgramRuntime::remove(const std::string& name) {
  for (const Deadline deadline = Deadline::after(kLongestRemoval); !try_removal(name); ::poll(nullptr, 0, kPauseMs)) {
    if (deadline.passed()) throw failure("cannot remove a container", name + " is being removed, and stays");
  }
}

std::vector<std::string> ProgramRuntime::with_label(const std::string& label, const std::string& value) {
  const ProgramOutput listed =
      call({"ps", "--all", "--filter", fmt::format("label={}={}", label, value), "--format", "{{.Names}}"});
  std::vector<std::string> names;
  std::istringstream lines(listed.out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) names.push_back(line);
  }
  return names;
}

}  // namespace gyre::jobs::containers
