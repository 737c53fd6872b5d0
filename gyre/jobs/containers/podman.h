#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gyre/jobs/containers/container_runtime.h"

namespace gyre::jobs::containers {

/// podman, as root. It has a storage and settings of its own there, so that nothing depends on those of the machine's
/// administrators, whose images it can use all the same.
class Podman final : public ContainerRuntime {
 public:
  Podman(std::filesystem::path storage, std::vector<std::string> environment);

  std::optional<std::string> digest_of(const ImageName& name) override;
  Image fetch(const ImageName& name, const Interruption& interruption) override;
  std::optional<Image> built(const std::string& name) override;
  Image build(const ImageBuild& build, const Interruption& interruption,
              const std::function<void(const std::string&)>& output) override;
  void start(const Container& container) override;
  bool runs(const std::string& name) override;
  std::optional<pid_t> process_of(const std::string& name) override;
  void remove(const std::string& name) override;
  std::vector<std::string> with_label(const std::string& label, const std::string& value) override;

 private:
  struct Outcome;
  /// Settings and folders, once.
  void prepare();
  /// `temporary`: its TMPDIR; empty: /var/tmp.
  Outcome call(const std::vector<std::string>& arguments, const Interruption& interruption = {},
               const std::function<bool(pid_t)>& end = {}, const std::filesystem::path& temporary = {});
  /// Podman's own storage, if there is one; empty: there is none.
  std::string shared_images() const;
  void refuse_triggers(const std::string& image);
  /// What builds have left in the storage; nobody may be building.
  void remove_build_containers();
  Image inspect(const std::string& image, const std::string& shown);
  /// One that was built or loaded here, which no registry has; without an id: there is none.
  Image local_image(const ImageName& name);

  const std::filesystem::path storage_;
  const std::filesystem::path state_;  ///< Gone with the machine's next boot.
  std::vector<std::string> environment_;
  std::string low_runtime_;  ///< The program by which podman starts containers.
};

}  // namespace gyre::jobs::containers
