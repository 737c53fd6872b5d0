#include "gyre/jobs/containers/internal/build_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/pipe.h"
#include "gyre/jobs/containers/internal/program_run.h"

namespace gyre::jobs::containers::internal {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLongestEnd{30};
constexpr std::string_view kBundle = "buildah";  // How it begins the name of the folder of a RUN; that of its container
                                                 // is "buildah-" and this name.

/// $1: the runtime's program, $2: the folder of the build.
constexpr const char* kGuardian = R"sh(
read -r line && exit 0
for bundle in "$2"/buildah*; do
  [ -d "$bundle" ] && "$1" delete --force "buildah-${bundle##*/}"
done)sh";

bool has_mounts(const fs::path& folder) {
  std::ifstream file("/proc/self/mountinfo");
  const std::string table{std::istreambuf_iterator<char>(file), {}};
  return table.empty() || table.find(fmt::format(" {}/", folder.string())) != std::string::npos;
}

}  // namespace

void lock_file(const UniqueFd& file, int operation, const Interruption& interruption) {
  constexpr int kPauseMs = 200;
  while (::flock(file.get(), operation | LOCK_NB) != 0) {
    if (interruption.wanted && interruption.wanted()) throw Error(ErrorCode::kAborted, "the build was given up");
    pollfd wake{.fd = interruption.wake_fd, .events = POLLIN, .revents = 0};
    ::poll(&wake, 1, kPauseMs);
  }
}

UniqueFd open_lock(const fs::path& file) {
  UniqueFd opened(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!opened) throw system_error(fmt::format("cannot open {}", file.string()), errno);
  return opened;
}

BuildPlace::BuildPlace(const fs::path& builds, const fs::path& lock, const std::string& key, LowRuntime runtime,
                       std::function<void()> remove_containers, const Interruption& interruption)
    : builds_(builds),
      folder_(builds / key),
      runtime_(std::move(runtime)),
      remove_containers_(std::move(remove_containers)),
      building_(open_lock(lock)) {
  clean_up();
  lock_file(building_, LOCK_SH, interruption);
  end(folder_);  // Of a builder that was killed while others build.
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) throw system_error(fmt::format("cannot make {}", folder_.string()), failure.value());
  // The accounts of a build reach what lies in it, and see no names.
  constexpr fs::perms kPassable = fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec;
  for (const fs::path& each : {builds_, folder_}) fs::permissions(each, kPassable);
  start_guardian();
}

BuildPlace::~BuildPlace() {
  if (guarded_) {
    [[maybe_unused]] const ssize_t ignored = ::write(guarded_.get(), "\n", 1);
    guarded_.reset();
  }
  if (guardian_ && guardian_->wait(Deadline::after(kLongestEnd))) guardian_->reap();
  try {
    end(folder_);
    clean_up();
  } catch (const Error&) {  // The next build does it.
  }
}

void BuildPlace::clean_up() {
  if (::flock(building_.get(), LOCK_EX | LOCK_NB) != 0) return;
  std::error_code failure;
  for (auto entry = fs::directory_iterator(builds_, failure); !failure && entry != fs::directory_iterator();
       entry.increment(failure)) {
    end(entry->path());
  }
  fs::remove(builds_, failure);  // If that has left nothing.
  remove_containers_();
}

void BuildPlace::end(const fs::path& folder) const {
  std::error_code failure;
  for (auto entry = fs::directory_iterator(folder, failure); !failure && entry != fs::directory_iterator();
       entry.increment(failure)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(kBundle)) continue;
    try {
      // Fails where the program has ended with its build, as most have.
      run_program({runtime_.program, "delete", "--force", fmt::format("buildah-{}", name)}, runtime_.environment,
                  Deadline::after(kLongestEnd), {});
    } catch (const Error&) {
    }
  }
  if (!has_mounts(folder)) fs::remove_all(folder, failure);
}

void BuildPlace::start_guardian() {
  Pipe pipe = make_pipe();
  guarded_ = std::move(pipe.write);
  const UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", kGuardian, "gyre-build-guardian", runtime_.program, folder_.string()};
  options.environment = runtime_.environment;
  options.stdin_fd = pipe.read.get();
  options.stdout_fd = options.stderr_fd = nowhere.get();
  options.own_process_group = true;
  options.folder = "/";
  guardian_.emplace(Process::spawn(options));
}

}  // namespace gyre::jobs::containers::internal
