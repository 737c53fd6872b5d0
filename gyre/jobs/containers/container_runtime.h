#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/process.h"

namespace gyre::jobs::containers {

/// An image as a user names it.
struct ImageName {
  std::string image;     ///< "team/train:1", "registry.example/team/train@sha256:…".
  std::string server;    ///< Its registry; empty: the one in `image`, else Docker Hub.
  std::string user;      ///< Empty: the registry asks for none.
  std::string password;  ///< A secret.
  /// Of its contents: "sha256:…". Empty: whatever the registry has under the name.
  std::string digest{};
};

/// An image that this machine has.
struct Image {
  std::string id;
  std::string name;    ///< In full: with its registry.
  std::string digest;  ///< "sha256:…": of exactly these contents, on every machine. Empty: it came from no registry.
};

/// A file or folder of the machine that a container sees.
struct BindMount {
  std::filesystem::path source;
  std::filesystem::path target;
  bool read_only = false;

  bool operator==(const BindMount&) const = default;
};

struct Container {
  std::string name;
  std::string image_id;
  std::map<std::string, std::string> labels;
  /// Who the container's root is outside: it has this account's rights over what is mounted, and no others.
  UserId root;
  std::vector<BindMount> places;              ///< Of the job.
  std::vector<BindMount> program;             ///< What the first process needs; for reading alone.
  std::uint64_t shared_memory_bytes = 0;      ///< The size of /dev/shm.
  std::optional<int> cores;                   ///< At most so many.
  std::optional<std::uint64_t> memory_bytes;  ///< At most so much, /dev/shm included; nothing goes to swap.
  /// Its first process, in place of the image's ENTRYPOINT and CMD. The container is over when it ends.
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  ///< Added to the image's.
};

/// What an image is made of.
struct ImageBuild {
  std::string name;                ///< kBuiltImages, and what tells it from others.
  std::string dockerfile;          ///< Dockerfile::text(), with ids for images that this machine has.
  std::vector<std::string> bases;  ///< These ids.
  std::filesystem::path context;   ///< A folder in which nobody but us writes.
  /// As in Container: its programs have the rights of a container's, and no others.
  UserId root;
  std::optional<int> cores{};
  std::optional<std::uint64_t> memory_bytes{};
};

/// The names of images that were built here for jobs begin so. No job can name one.
inline constexpr const char* kBuiltImages = "localhost/gyre-built:";

/// Asked while something takes long: whether to give it up. `wake_fd` becomes readable when the answer may change.
struct Interruption {
  std::function<bool()> wanted;
  int wake_fd = -1;
};

/// What runs containers on this machine. Calls block; each has a deadline. Thread-safe. Errors are one sentence for the
/// user: what is missing, and the remedy.
class ContainerRuntime {
 public:
  virtual ~ContainerRuntime() = default;

  /// The digest that the registry has for the image now; nothing for an image that no registry is asked for. Errors as
  /// fetch(), and kIo where this machine has nothing to ask with.
  virtual std::optional<std::string> digest_of(const ImageName& name) = 0;
  /// Fetches the image, unless the machine has it by itself (one that was built or loaded there, "localhost/…").
  /// Error(kNotFound): there is none of this name; Error(kAuthentication): the registry refuses the user;
  /// Error(kUnsupported): it is for other machines; Error(kResourceExhausted): the disk is full; Error(kAborted): it
  /// was given up; Error(kIo).
  virtual Image fetch(const ImageName& name, const Interruption& interruption) = 0;
  /// One that build() has made; nothing: it is not there. While this object lives, nobody removes it.
  virtual std::optional<Image> built(const std::string& name) = 0;
  /// Makes it, unless it is there. If another process makes it, waits for that. `output`: what its programs have said,
  /// if one has failed. Others that were built go if all have more than GYRE_BUILT_IMAGES, the longest unused first;
  /// none that somebody has. Error(kInvalidArgument): the Dockerfile does not work; as fetch().
  virtual Image build(const ImageBuild& build, const Interruption& interruption,
                      const std::function<void(const std::string&)>& output) = 0;
  /// Returns once the first process runs: that, as the machine numbers it. The container removes itself when it ends.
  /// Error(kUnsupported), Error(kResourceExhausted), Error(kAborted), Error(kIo).
  virtual pid_t start(const Container& container, const Interruption& interruption) = 0;
  /// As start(); nothing: it does not run.
  virtual std::optional<pid_t> process_of(const std::string& name) = 0;
  /// Kills all that runs in it. One that is not there is fine. Error(kIo).
  virtual void remove(const std::string& name) = 0;
  /// The names of containers with this label.
  virtual std::vector<std::string> with_label(const std::string& label, const std::string& value) = 0;
};

/// Where the images and containers of jobs lie, unless somebody chooses another folder (GYRE_CONTAINERS).
inline constexpr const char* kDefaultStorage = "/var/lib/gyre/containers";
std::filesystem::path storage_of(const std::vector<std::string>& environment);
/// Images that are built stay for later jobs up to this size, all of a machine's together (GYRE_BUILT_IMAGES; 50 GB).
/// Error(kInvalidArgument).
std::uint64_t built_image_bytes(const std::vector<std::string>& environment);
/// What programs that start containers get of an environment: by it they know where registries are.
std::vector<std::string> runtime_environment(const std::vector<std::string>& environment);

/// The runtime that this machine has: podman, or docker where there is no podman, unless `environment` chooses one
/// (GYRE_CONTAINER_PROGRAM). `environment`: for its programs as well; PATH and proxies. Error(kUnsupported) if there is
/// none, with the command that installs it; Error(kInvalidArgument): a choice that is none, or GYRE_BUILT_IMAGES
/// in it is not a size.
std::unique_ptr<ContainerRuntime> find_runtime(const std::filesystem::path& storage,
                                               const std::vector<std::string>& environment);

/// As ContainerRuntime::digest_of(), asked from a machine that need not be able to run containers. `folder`: for a file
/// with the password, which only we can read and which goes with the call. Nothing for "localhost/…", which no registry
/// has.
std::optional<std::string> digest_in_registry(const ImageName& name, const std::filesystem::path& folder,
                                              const std::vector<std::string>& environment);

/// "16gb", "64m", as docker takes them. Error(kInvalidArgument).
std::uint64_t bytes_of_size(const std::string& size);

/// 0 where the kernel does not say.
std::uint64_t memory_of_machine();

/// The size of a container's /dev/shm: `wanted`, or half of the memory that the job may have. Error(kInvalidArgument)
/// when that cannot hold what is wanted. Pure.
std::uint64_t shared_memory_size(const std::string& wanted, std::uint64_t memory_bytes);

}  // namespace gyre::jobs::containers
