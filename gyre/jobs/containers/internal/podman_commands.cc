#include "gyre/jobs/containers/internal/podman_commands.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace gyre::jobs::containers::internal {

namespace {

constexpr std::uint32_t kFirstAccount = 0x7000'0000;  // systemd's table of accounts leaves these to nobody.
constexpr std::uint32_t kAccounts = kOtherAccounts + 1;
constexpr std::uint32_t kRanges = 4'093;

/// RFC 4648 §4.
std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      group = group << 8U | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) text += i <= count ? kLetters[group >> (18 - 6 * i) & 63U] : '=';
  }
  return text;
}

/// As docker decides it: the first part of a name is a registry if it looks like a host.
bool has_registry(std::string_view name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view first = name.substr(0, slash);
  return first == "localhost" || first.find_first_of(".:") != std::string_view::npos;
}

std::string without_scheme(std::string server) {
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (server.starts_with(scheme)) server.erase(0, scheme.size());
  }
  while (server.ends_with('/')) server.pop_back();
  return server;
}

/// "uidmap" or "gidmap", and what it is: root is `root`, and all others are nobody's.
std::vector<std::pair<std::string, std::string>> mappings_of(const UserId& root) {
  const std::string others = fmt::format("1:{}:{}", first_subordinate(root.user), kAccounts - 1);
  return {{"uidmap", fmt::format("0:{}:1", root.user)},
          {"uidmap", others},
          {"gidmap", fmt::format("0:{}:1", root.group)},
          {"gidmap", others}};
}

}  // namespace

std::string settings_file(const Limits& limits, bool runc) {
  std::string text = fmt::format(
      "# Written by Gyre.\n"
      "[containers]\n"
      "default_ulimits = [\"nofile={0}:{0}\", \"nproc={1}:{1}\"]\n"
      "log_driver = \"none\"\n"
      "pids_limit = 0\n"
      "[engine]\n"
      "cgroup_manager = \"cgroupfs\"\n"
      "events_logger = \"none\"\n"
      "lock_type = \"file\"\n",
      limits.files, limits.processes);
  if (runc) text += "runtime = \"runc\"\n";
  return text;
}

std::vector<std::string> storage_arguments(const std::string& storage, const std::string& state,
                                           const std::string& shared_images, bool metacopy) {
  std::vector<std::string> arguments = {"--root",   storage + "/root", "--runroot",        state + "/run",
                                        "--tmpdir", state + "/libpod", "--storage-driver", "overlay"};
  // The files of an image change hands for each account. Without this their contents are copied for it.
  if (metacopy) arguments.insert(arguments.end(), {"--storage-opt", "overlay.mountopt=metacopy=on"});
  if (!shared_images.empty()) {
    arguments.insert(arguments.end(), {"--storage-opt", "overlay.imagestore=" + shared_images});
  }
  return arguments;
}

std::string full_name(const ImageName& name) {
  const std::string server = without_scheme(name.server);
  if (!server.empty() && server != "docker.io" && server != "index.docker.io" && server != "index.docker.io/v1") {
    return name.image.starts_with(server + "/") ? name.image : server + "/" + name.image;
  }
  if (has_registry(name.image)) return name.image;
  const bool is_official = name.image.find('/') == std::string::npos;
  return fmt::format("docker.io/{}{}", is_official ? "library/" : "", name.image);
}

std::string registry_of(const std::string& full_name) { return full_name.substr(0, full_name.find('/')); }

std::vector<std::string> digest_arguments(const std::string& full_name, const std::string& credentials_file) {
  std::vector<std::string> arguments = {"skopeo", "inspect", "--no-tags", "--format", "{{.Digest}} {{.Architecture}}"};
  if (!credentials_file.empty()) arguments.insert(arguments.end(), {"--authfile", credentials_file});
  arguments.push_back("docker://" + full_name);
  return arguments;
}

std::string with_digest(const std::string& full_name, const std::string& digest) {
  if (digest.empty()) return full_name;
  const std::string untagged = full_name.substr(0, full_name.find('@'));
  const std::size_t colon = untagged.rfind(':');  // Or that of a port.
  const bool has_tag = colon != std::string::npos && untagged.find('/', colon) == std::string::npos;
  return fmt::format("{}@{}", has_tag ? untagged.substr(0, colon) : untagged, digest);
}

std::vector<std::string> pull_arguments(const std::string& full_name, const std::string& credentials_file) {
  std::vector<std::string> arguments = {"pull", "--quiet"};
  if (!credentials_file.empty()) arguments.insert(arguments.end(), {"--authfile", credentials_file});
  arguments.push_back("docker://" + full_name);
  return arguments;
}

std::vector<std::string> configuration_arguments(const std::string& storage, const std::string& state,
                                                 const std::string& shared_images, const std::string& image_id) {
  const std::string shared = shared_images.empty() ? "" : ":overlay.imagestore=" + shared_images;
  return {"skopeo", "inspect", "--config", "--raw",
          fmt::format("containers-storage:[overlay@{}/root+{}/run{}]@{}", storage, state, shared, image_id)};
}

std::vector<std::string> build_arguments(const ImageBuild& build, const std::string& file) {
  std::vector<std::string> arguments = {"build",      "--pull=never", "--network", "host",  "--layers=false",
                                        "--force-rm", "--file",       file,        "--tag", build.name};
  for (const auto& [option, mapping] : mappings_of(build.root)) {
    arguments.insert(arguments.end(), {"--userns-" + option.substr(0, 3) + "-map", mapping});
  }
  if (build.cores) {
    constexpr int kPeriod = 100'000;
    arguments.insert(arguments.end(), {"--cpu-period", std::to_string(kPeriod), "--cpu-quota",
                                       std::to_string(std::int64_t{*build.cores} * kPeriod)});
  }
  if (build.memory_bytes) {
    const std::string limit = fmt::format("{}b", *build.memory_bytes);
    arguments.insert(arguments.end(), {"--memory", limit, "--memory-swap", limit});
  }
  arguments.push_back(build.context.string());
  return arguments;
}

std::vector<std::string> common_run_arguments(const Container& container) {
  std::vector<std::string> arguments = {"--detach",
                                        "--rm",
                                        "--name",
                                        container.name,
                                        "--network",
                                        "host",
                                        "--pull",
                                        "never",
                                        "--user",
                                        "0:0",
                                        "--workdir",
                                        "/",
                                        "--no-healthcheck",
                                        "--shm-size",
                                        fmt::format("{}b", container.shared_memory_bytes)};
  if (container.cores) arguments.insert(arguments.end(), {"--cpus", std::to_string(*container.cores)});
  if (container.memory_bytes) {
    const std::string limit = fmt::format("{}b", *container.memory_bytes);
    arguments.insert(arguments.end(), {"--memory", limit, "--memory-swap", limit});
  }
  for (const auto& [label, value] : container.labels) {
    arguments.insert(arguments.end(), {"--label", fmt::format("{}={}", label, value)});
  }
  for (const auto& [variable, value] : container.environment) {
    arguments.insert(arguments.end(), {"--env", fmt::format("{}={}", variable, value)});
  }
  return arguments;
}

void add_command(const Container& container, const std::string& image_id, std::vector<std::string>& arguments) {
  arguments.insert(arguments.end(), {"--entrypoint", container.command.front(), image_id});
  arguments.insert(arguments.end(), container.command.begin() + 1, container.command.end());
}

std::vector<std::string> run_arguments(const Container& container, const std::string& number_file) {
  std::vector<std::string> arguments = common_run_arguments(container);
  arguments.insert(arguments.begin(), {"run", "--pidfile", number_file});
  for (const auto& [option, mapping] : mappings_of(container.root)) {
    arguments.insert(arguments.end(), {"--" + option, mapping});
  }
  arguments.insert(arguments.end(), {"--systemd", "false"});
  for (const std::vector<BindMount>* mounts : {&container.places, &container.program}) {
    for (const BindMount& mount : *mounts) {
      arguments.insert(arguments.end(), {"--mount", fmt::format("type=bind,src={},dst={},bind-propagation=rslave{}",
                                                                mount.source.string(), mount.target.string(),
                                                                mount.read_only ? ",ro" : "")});
    }
  }
  add_command(container, container.image_id, arguments);
  return arguments;
}

std::string credentials_file(const std::string& registry, const std::string& user, const std::string& password) {
  const nlohmann::json file = {{"auths", {{registry, {{"auth", base64(user + ":" + password)}}}}}};
  return file.dump();
}

std::uint32_t first_subordinate(std::uint32_t account) { return kFirstAccount + account % kRanges * kAccounts; }

}  // namespace gyre::jobs::containers::internal
