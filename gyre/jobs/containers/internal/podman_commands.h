#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gyre/jobs/containers/container_runtime.h"

// What podman is asked, as pure functions. No secret is ever part of a command line.
namespace gyre::jobs::containers::internal {

/// How many files and processes a container's processes may have: what we may have ourselves, at most.
struct Limits {
  std::uint64_t files = 1024;
  std::uint64_t processes = 1024;
};

/// Podman's settings file. Without `runc` podman chooses the runtime itself.
std::string settings_file(const Limits& limits, bool runc);

/// The arguments before the verb. `shared_images`: a storage of podman's own whose images can be used too; empty: none.
/// `metacopy`: the kernel's overlay file system can change a file's owner without copying it.
std::vector<std::string> storage_arguments(const std::string& storage, const std::string& state,
                                           const std::string& shared_images, bool metacopy);

/// "docker.io/library/python:3", whatever part of it the user has left out. An image of this machine alone stays
/// "localhost/…".
std::string full_name(const ImageName& name);
/// The registry of a full name.
std::string registry_of(const std::string& full_name);

/// What asks the registry for an image's digest and processor. `credentials_file`: empty: none.
std::vector<std::string> digest_arguments(const std::string& full_name, const std::string& credentials_file);
/// The contents of that digest in place of those of a tag; without a digest the name as it is.
std::string with_digest(const std::string& full_name, const std::string& digest);
std::vector<std::string> pull_arguments(const std::string& full_name, const std::string& credentials_file);
/// What shows the whole configuration of an image that is here, of which podman leaves parts out. As
/// storage_arguments().
std::vector<std::string> configuration_arguments(const std::string& storage, const std::string& state,
                                                 const std::string& shared_images, const std::string& image_id);
/// `file`: the Dockerfile.
std::vector<std::string> build_arguments(const ImageBuild& build, const std::string& file);
/// `number_file`: where podman writes the first process.
std::vector<std::string> run_arguments(const Container& container, const std::string& number_file);
/// Of run_arguments(), what docker is asked in the same words: name, limits, labels, variables.
std::vector<std::string> common_run_arguments(const Container& container);
/// The container's first process, of an image of this id.
void add_command(const Container& container, const std::string& image_id, std::vector<std::string>& arguments);

/// The file that podman and docker keep passwords in.
std::string credentials_file(const std::string& registry, const std::string& user, const std::string& password);

/// The first of the kOtherAccounts accounts of this machine that the container's other accounts are. Those of two
/// accounts differ, and none of them is an account of a person's.
std::uint32_t first_subordinate(std::uint32_t account);
inline constexpr std::uint32_t kOtherAccounts = 65'535;

}  // namespace gyre::jobs::containers::internal
