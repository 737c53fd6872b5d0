#include "gyre/jobs/containers/internal/docker_commands.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/jobs/containers/internal/podman_commands.h"
#include "gyre/jobs/containers/program_files.h"

namespace gyre::jobs::containers::internal {

std::uint32_t account_outside(std::uint64_t account, std::uint32_t root, std::uint32_t owner) {
  if (account == 0) return root;
  return first_subordinate(owner) + static_cast<std::uint32_t>(std::min<std::uint64_t>(account, kOtherAccounts) - 1);
}

std::vector<std::string> docker_create_arguments(const Container& container) {
  std::vector<std::string> arguments = {"create", "--network", "none"};
  for (const auto& [label, value] : container.labels) {
    arguments.insert(arguments.end(), {"--label", fmt::format("{}={}", label, value)});
  }
  arguments.insert(arguments.end(), {"--entrypoint", container.command.front(), container.image_id});
  return arguments;
}

std::vector<std::string> docker_run_arguments(const Container& container, const std::string& image_id,
                                              const std::vector<std::string>& variables) {
  // With this right the first process enters a user namespace, and leaves it behind there.
  std::vector<std::string> arguments = {"run",   "--userns", "host",         "--cap-add", "SYS_ADMIN",
                                        "--ipc", "private",  "--log-driver", "none"};
  // Up to there nothing of the image may run: no library that its variables or its files name.
  for (const std::string& variable : variables) {
    arguments.insert(arguments.end(), {"--env", kVariableOfImage + variable});
  }
  const std::vector<std::string> common = common_run_arguments(container);
  arguments.insert(arguments.end(), common.begin(), common.end());
  std::vector<BindMount> mounts = container.program;
  mounts.push_back({"/dev/null", kPreloadList, true});
  for (const BindMount& mount : mounts) {
    arguments.insert(arguments.end(), {"--mount", fmt::format("type=bind,src={},dst={},readonly", mount.source.string(),
                                                              mount.target.string())});
  }
  Container whole = container;
  whole.command = {kLoaderInContainer, "--inhibit-cache", "--library-path", kLibrariesInContainer};
  whole.command.insert(whole.command.end(), container.command.begin(), container.command.end());
  whole.command.insert(whole.command.end(),
                       {"--root", fmt::format("{}:{}:{}:{}", container.root.user, container.root.group,
                                              first_subordinate(container.root.user), kOtherAccounts)});
  add_command(whole, image_id, arguments);
  return arguments;
}

}  // namespace gyre::jobs::containers::internal
