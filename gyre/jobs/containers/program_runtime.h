#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/containers/container_runtime.h"
#include "gyre/jobs/containers/internal/credentials.h"
#include "gyre/jobs/containers/internal/program_run.h"

namespace gyre::jobs::containers {

/// A program with docker's verbs, as root: what podman and docker have in common.
class ProgramRuntime : public ContainerRuntime {
 public:
  std::optional<std::string> digest_of(const ImageName& name) final;
  Image fetch(const ImageName& name, const Interruption& interruption) final;
  std::optional<Image> built(const std::string& name) override;
  std::optional<pid_t> process_of(const std::string& name) final;
  void remove(const std::string& name) final;
  std::vector<std::string> with_label(const std::string& label, const std::string& value) final;

 protected:
  /// `program`: "podman". `state`: a folder for files that are gone with the machine's next boot; it is made.
  ProgramRuntime(std::string program, std::filesystem::path state, std::vector<std::string> environment);

  struct Pull {
    std::vector<std::string> arguments;
    std::vector<std::string> environment;  ///< Added to ours.
  };

  /// What stands before each verb.
  virtual std::vector<std::string> before_verb() const { return {}; }
  /// What the program calls a registry where it keeps passwords.
  virtual std::string name_of_registry(const std::string& registry) const { return registry; }
  virtual Pull pull(const std::string& place, const internal::Credentials& credentials) const = 0;
  /// The image that pull() has brought; `said`: what it has printed. Without an id: there is none.
  virtual Image pulled(const std::string& place, const std::string& said, const std::string& shown) = 0;
  /// As image_format() shows it; nothing: there is none.
  virtual std::optional<std::string> words_of(const std::string& image);
  /// What shows the id and the processor of an image, and its digest where the program knows it.
  virtual const char* image_format() const = 0;
  /// False: somebody else is about to.
  virtual bool try_removal(const std::string& name) = 0;

  internal::ProgramOutput call(const std::vector<std::string>& arguments, const Interruption& interruption = {},
                               const std::function<bool(pid_t)>& end = {},
                               const std::vector<std::string>& more_environment = {});
  /// Of words_of(). Error(kUnsupported): it is for other machines.
  static Image image_in(const std::string& words, const std::string& shown);
  /// Without an id: there is none.
  Image inspect(const std::string& image, const std::string& shown);
  /// That it cannot do something, in its own words.
  Error failure(const std::string& what, const std::string& output) const;

  const std::filesystem::path& state() const { return state_; }
  std::vector<std::string>& environment() { return environment_; }

 private:
  /// One that was built or loaded here, which no registry has; without an id: there is none.
  Image local_image(const ImageName& name);

  const std::string program_;
  const std::filesystem::path state_;
  std::vector<std::string> environment_;
};

}  // namespace gyre::jobs::containers
