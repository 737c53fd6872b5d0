#pragma once

#include <string>
#include <vector>

#include "gyre/jobs/containers/program_runtime.h"

namespace gyre::jobs::containers {

/// docker, as root, with the daemon of the machine and what its administrators keep there. Its containers are in the
/// accounts of the machine: their first process makes itself a root that is the job's account outside, and the image
/// that it runs in is a copy whose files belong to that (ADR 146).
class Docker final : public ProgramRuntime {
 public:
  explicit Docker(std::vector<std::string> environment);

  Image build(const ImageBuild& build, const Interruption& interruption,
              const std::function<void(const std::string&)>& output) override;
  pid_t start(const Container& container, const Interruption& interruption) override;

 private:
  std::string name_of_registry(const std::string& registry) const override;
  Pull pull(const std::string& place, const internal::Credentials& credentials) const override;
  Image pulled(const std::string& place, const std::string& said, const std::string& shown) override;
  const char* image_format() const override { return "{{.Id}} {{.Architecture}}"; }
  bool try_removal(const std::string& name) override;

  /// That it is one whose containers we can have. Error(kIo), Error(kUnsupported).
  void check_daemon();
  /// The copy of the container's image whose files belong to its root; made once for each account.
  std::string owned_image(const Container& container, const Interruption& interruption);
  /// `source`: a container of the image, which does not run.
  void copy_image(const std::string& source, const std::string& name, const UserId& root,
                  const Interruption& interruption);
  std::vector<std::string> variables_of(const std::string& image);
};

}  // namespace gyre::jobs::containers
