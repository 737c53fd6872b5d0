#include "gyre/jobs/containers/internal/podman_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "gyre/cli/table.h"
#include "gyre/jobs/containers/internal/podman_commands.h"

namespace gyre::jobs::containers::internal {

namespace {

bool says(const std::string& output, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return output.find(word) != std::string::npos; });
}

}  // namespace

std::string words_of_podman(const std::string& output) {
  constexpr std::size_t kLongest = 500;
  std::string last;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    for (const std::string_view error : {"Error: ", "Error response from daemon: "}) {
      const std::size_t at = line.find(error);
      if (at == 0 || (at != std::string::npos && line.starts_with("docker: "))) last = line.substr(at + error.size());
    }
    if (last.empty() && !line.empty()) last = line;
  }
  return cli::printable(last.substr(0, kLongest));
}

Error fetch_error(const ImageName& name, const std::string& output) {
  const std::string full = full_name(name);
  const std::string registry = registry_of(full);
  if (says(output, {"no space left on device", "disk quota exceeded"})) {
    return {ErrorCode::kResourceExhausted,
            fmt::format("the disk of this machine has no room for the image {}; make room, or remove images", full)};
  }
  if (registry == "localhost") {
    return {
        ErrorCode::kNotFound,
        fmt::format("this machine has no image {}; make it, or load it, on the machine as root (`podman build -t {}`)",
                    full, full.substr(registry.size() + 1))};
  }
  if (says(output, {"invalid reference format", "must be lowercase"})) {
    return {ErrorCode::kNotFound,
            fmt::format("there can be no image {}: names have lower-case letters, digits, '.', '-', '_' and '/', and a "
                        "tag comes after ':'",
                        full)};
  }
  if (says(output, {"unauthorized", "authentication required", "invalid username/password", "denied", "403 (Forbidden)",
                    "401 (Unauthorized)", "no basic auth credentials"})) {
    if (!name.user.empty()) {
      return {ErrorCode::kAuthentication,
              fmt::format("the registry {} refuses user '{}' the image {}: a wrong password, or no right to it "
                          "(imageSourceRegistry.credentials)",
                          registry, name.user, full)};
    }
    return {ErrorCode::kAuthentication,
            fmt::format("the registry {} shows the image {} to nobody without a password, or has none of this name; "
                        "give one in imageSourceRegistry.credentials",
                        registry, full)};
  }
  if (says(output, {"manifest unknown", "name unknown", "repository name not known", "404 (Not Found)"})) {
    const bool moved = full.starts_with("docker.io/microsoft/");
    return {ErrorCode::kNotFound,
            fmt::format("the registry {} has no image {}{}", registry, full,
                        moved ? "; Microsoft's images are at mcr.microsoft.com now: name one of those (serverUrl)"
                              : "; check its name and tag")};
  }
  if (says(output, {"no image found in manifest list for architecture", "no image found in image index",
                    "no matching manifest for"})) {
    return {ErrorCode::kUnsupported, fmt::format("the image {} has no variant for this machine's processor", full)};
  }
  if (says(output, {"server gave HTTP response to HTTPS client"})) {
    return {ErrorCode::kIo, fmt::format("the registry {0} speaks HTTP without TLS; to allow it, write `[[registry]]`, "
                                        "`location = \"{0}\"`, `insecure = true` into /etc/containers/registries.conf "
                                        "of this machine",
                                        registry)};
  }
  if (says(output, {"connection refused", "no such host", "i/o timeout", "network is unreachable", "no route to host",
                    "server misbehaving", "TLS handshake timeout"})) {
    return {ErrorCode::kIo, fmt::format("this machine cannot reach the registry {} for the image {}: {}", registry,
                                        full, words_of_podman(output))};
  }
  return {ErrorCode::kIo, fmt::format("the image {} cannot be fetched: {}", full, words_of_podman(output))};
}

std::string last_lines(const std::string& text, std::size_t most) {
  std::size_t begin = text.size();
  while (begin > 0 && text[begin - 1] == '\n') --begin;
  const std::string_view content(text.data(), begin);
  for (; most > 0 && begin != std::string::npos; --most)
    begin = begin == 0 ? std::string::npos : content.rfind('\n', begin - 1);
  return std::string(begin == std::string::npos ? content : content.substr(begin + 1));
}

Error build_error(const std::string& out, const std::string& error) {
  constexpr std::size_t kMostLines = 3;
  constexpr std::size_t kLongest = 300;
  if (says(out, {"no space left on device", "No space left on device", "disk quota exceeded"}) ||
      says(error, {"no space left on device", "No space left on device", "disk quota exceeded"})) {
    return {ErrorCode::kResourceExhausted,
            "the disk of this machine has no room for the job's image; make room, or "
            "remove images"};
  }
  const std::string what = words_of_podman(error);
  // What programs write is in both, and so are podman's own lines.
  std::string said;
  for (const std::string* text : {&error, &out}) {
    std::istringstream lines(*text);
    std::string programs;
    for (std::string line; std::getline(lines, line);) {
      const bool own = line.starts_with("STEP ") || line.starts_with("--> ") || line.starts_with("Error: ") ||
                       line.starts_with("time=") || line.starts_with("[1/") || line.starts_with("COMMIT");
      if (!own && line.find_first_not_of(" \t\r") != std::string::npos) programs += line.substr(0, kLongest) + "\n";
    }
    said = last_lines(programs, kMostLines);
    if (!said.empty()) break;
  }
  for (std::size_t end = said.find('\n'); end != std::string::npos; end = said.find('\n', end))
    said.replace(end, 1, "; ");
  return {ErrorCode::kInvalidArgument, said.empty() ? what : fmt::format("{}: {}", what, cli::printable(said))};
}

bool has_triggers(const std::string& configuration) {
  using nlohmann::json;
  // As the builder reads it: names in any case, and whichever of several of the same name has something.
  bool is_next = false;
  bool is_list = false;
  bool found = false;
  const auto callback = [&](int /*depth*/, json::parse_event_t event, json& parsed) {
    using enum json::parse_event_t;
    if (event == key) {
      std::string name = parsed.get<std::string>();
      std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
      is_next = name == "onbuild";
      return true;
    }
    if (is_list && event != array_end) found = true;
    is_list = is_next && event == array_start;
    if (is_next && !is_list && !(event == value && parsed.is_null())) found = true;
    is_next = false;
    return true;
  };
  const json read = json::parse(configuration, callback, false);
  return read.is_discarded() || !read.is_object() || found;
}

std::string architecture_of_images(const std::string& machine) {
  if (machine == "x86_64") return "amd64";
  return machine == "aarch64" ? "arm64" : machine;
}

}  // namespace gyre::jobs::containers::internal
