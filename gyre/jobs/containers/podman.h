#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/jobs/containers/internal/image_notes.h"
#include "gyre/jobs/containers/internal/image_uses.h"
#include "gyre/jobs/containers/program_runtime.h"

namespace gyre::jobs::containers {

/// podman, as root. It has a storage and settings of its own there, so that nothing depends on those of the machine's
/// administrators, whose images it can use all the same.
class Podman final : public ProgramRuntime {
 public:
  Podman(std::filesystem::path storage, std::vector<std::string> environment);

  std::optional<Image> built(const std::string& name) override;
  Image build(const ImageBuild& build, const Interruption& interruption,
              const std::function<void(const std::string&)>& output) override;
  pid_t start(const Container& container, const Interruption& interruption) override;

 private:
  std::vector<std::string> before_verb() const override;
  Pull pull(const std::string& place, const internal::Credentials& credentials) const override;
  Image pulled(const std::string& place, const std::string& said, const std::string& shown) override;
  const char* image_format() const override { return "{{.Id}} {{.Architecture}} {{.Digest}}"; }
  std::optional<std::string> words_of(const std::string& image) override;
  bool try_removal(const std::string& name) override;

  /// Settings and folders, once.
  void prepare();
  /// Podman's own storage, if there is one; empty: there is none.
  std::string shared_images() const;
  void refuse_triggers(const std::string& image);
  /// Nobody removes the image that was, or will be, built under this key.
  void hold(const std::string& key) GYRE_EXCLUDES(mutex_);
  /// Removes images that were built, those that were used longest ago first, until the rest is small enough.
  void make_room();
  /// What builds have left in the storage; nobody may be building.
  void remove_build_containers();

  const std::filesystem::path storage_;
  const internal::ImageUses uses_;
  const internal::ImageNotes notes_;
  const std::uint64_t built_bytes_;  ///< Of images that were built, which stay for later jobs.
  Mutex mutex_;
  std::map<std::string, UniqueFd> held_ GYRE_GUARDED_BY(mutex_);
  std::string low_runtime_;  ///< The program by which podman starts containers.
};

}  // namespace gyre::jobs::containers
