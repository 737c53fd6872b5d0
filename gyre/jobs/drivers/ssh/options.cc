#include "gyre/jobs/drivers/ssh/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "gyre/jobs/drivers/internal/engine_option_values.h"

namespace gyre::jobs::drivers::ssh {

namespace {

const std::string kKind = "ssh";

/// A name that ssh knows, perhaps with a user before it; never one of its options.
bool is_host(const std::string& text) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == '@' || c == ':';
  };
  return !text.empty() && text.front() != '-' && text.size() <= 255 && std::ranges::all_of(text, fits);
}

std::vector<std::string> entries_of(const std::string& text) {
  std::vector<std::string> entries;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t begin = part.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    entries.push_back(part.substr(begin, part.find_last_not_of(' ') - begin + 1));
  }
  return entries;
}

std::vector<std::string> hosts_in(const std::string& text) {
  std::vector<std::string> hosts = entries_of(text);
  for (const std::string& host : hosts) {
    if (!is_host(host))
      refuse_option(kKind, "hosts", fmt::format("cannot have '{}', which is not a host's name", host));
    if (std::ranges::count(hosts, host) > 1) refuse_option(kKind, "hosts", fmt::format("has '{}' twice", host));
  }
  return hosts;
}

std::map<std::string, std::string> keys_in(const std::string& text) {
  std::map<std::string, std::string> keys;
  for (const std::string& entry : entries_of(text)) {
    const std::size_t space = entry.find(' ');
    const std::string key = space == std::string::npos ? "" : entry.substr(entry.find_last_of(' ') + 1);
    if (!key.starts_with("SHA256:")) {
      refuse_option(kKind, "host_keys", fmt::format("must be 'HOST SHA256:…' for each host, not '{}'", entry));
    }
    keys[entry.substr(0, space)] = key;
  }
  return keys;
}

}  // namespace

SshOptions options_from(const std::map<std::string, std::string>& driver_options) {
  check_lines(kKind, driver_options);
  SshOptions options;
  for (const auto& [name, value] : driver_options) {
    if (name == "hosts") {
      options.hosts = hosts_in(value);
    } else if (name == "host_keys") {
      options.host_keys = keys_in(value);
    } else if (name == "ssh_config") {
      if (!value.starts_with('/')) refuse_option(kKind, name, "must be an absolute path");
      options.config = value;
    } else if (!set_common_option(kKind, name, value, options)) {
      refuse_option(kKind, name,
                    fmt::format("is not known; there are hosts, host_keys, ssh_config, {}",
                                fmt::join(common_option_names(), ", ")));
    }
    options.names_gyre = options.names_gyre || name == "gyre";
  }
  if (options.hosts.empty()) refuse_option(kKind, "hosts", "is missing: the names of the cluster's hosts");
  return options;
}

}  // namespace gyre::jobs::drivers::ssh
