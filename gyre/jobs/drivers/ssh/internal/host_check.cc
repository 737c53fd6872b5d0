#include "gyre/jobs/drivers/ssh/internal/host_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <charconv>
#include <list>
#include <sstream>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/jobs/drivers/ssh/internal/scripts.h"

namespace gyre::jobs::drivers::ssh {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLongestLogin{30};

template <typename Number>
Number number_in(const std::string& text) {
  Number value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// "2.36" as {2, 36}.
std::pair<int, int> version_in(const std::string& text) {
  const std::size_t dot = text.find('.');
  return {number_in<int>(text), dot == std::string::npos ? 0 : number_in<int>(text.substr(dot + 1))};
}

std::string own_machine() {
  utsname names{};
  ::uname(&names);
  return names.machine;
}

Missing no_login(const std::string& host, const std::string& why) {
  return {fmt::format("nobody can log in to {} ({})", host, why),
          fmt::format("`ssh -o BatchMode=yes {} true` must work here, as the account that runs the server: with a key "
                      "or a certificate that needs no passphrase, or an agent that the server can reach",
                      host)};
}

/// Of the copy of our program, which a host without Gyre gets.
void add_missing_for_copy(const std::string& host, const HostAnswer& answer, std::vector<Missing>& missing) {
  const std::string install = "or install Gyre there, and name it with driverOptions.gyre";
  if (answer.machine != own_machine()) {
    missing.push_back({fmt::format("{} is a machine of type '{}', for which the server, a '{}', has no program", host,
                                   answer.machine, own_machine()),
                       install.substr(3)});
  } else if (version_in(answer.c_library) < version_in(::gnu_get_libc_version())) {
    missing.push_back(
        {fmt::format("{} has {}, and the server's program needs glibc {}", host,
                     answer.c_library.empty() ? "no glibc" : "glibc " + answer.c_library, ::gnu_get_libc_version()),
         "take a later system there, " + install});
  } else if (!answer.cache_usable) {
    missing.push_back({fmt::format("{} cannot keep a copy of the program in its cache folder on {}", answer.user, host),
                       fmt::format("let it write to ~/.cache (root: /var/cache) there, {}", install)});
  }
}

}  // namespace

std::string check_script(const SshOptions& options) {
  std::string program = "program=";
  if (options.names_gyre) {
    program = fmt::format("program=$(command -v {}) && program=$(\"$program\" --version 2>&1 < /dev/null | head -n 1)",
                          quoted(options.gyre));
  }
  return fmt::format(R"sh(folder={folder}
echo "user $(id -un)"
for tool in setsid tar sha256sum; do
  command -v "$tool" > /dev/null || echo "lacks $tool"
done
usable() {{
  mkdir "$1/gyre-check.$$" 2> /dev/null && rmdir "$1/gyre-check.$$"
}}
[ -d "$folder" ] && echo "folder there"
usable "$folder" && echo "folder usable"
{cache}
there=$cache
while [ ! -e "$there" ]; do there=$(dirname "$there"); done
usable "$there" && echo "cache usable"
{program}
echo "program $program"
echo "machine $(uname -m)"
echo "libc $(getconf GNU_LIBC_VERSION 2> /dev/null)"
echo "place $(cat /proc/sys/kernel/random/boot_id) $(stat -L -c %d:%i "$folder" 2> /dev/null)"
echo "memory $(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)"
echo "cores $(getconf _NPROCESSORS_ONLN)"
echo "whole"
)sh",
                     fmt::arg("folder", quoted(options.node_folder.string())), fmt::arg("cache", kCacheFolder),
                     fmt::arg("program", program));
}

HostAnswer answer_in(const std::string& output) {
  HostAnswer answer;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const std::string word = line.substr(0, line.find(' '));
    const std::string rest = word.size() < line.size() ? line.substr(word.size() + 1) : "";
    if (word == "user") answer.user = rest;
    if (word == "lacks") answer.lacks.push_back(rest);
    if (line == "folder there") answer.has_folder = true;
    if (line == "folder usable") answer.folder_usable = true;
    if (line == "cache usable") answer.cache_usable = true;
    if (word == "program") answer.program = rest;
    if (word == "machine") answer.machine = rest;
    if (word == "libc") answer.c_library = rest.starts_with("glibc ") ? rest.substr(6) : "";
    if (word == "place") answer.place = rest;
    if (word == "memory") answer.size.memory_bytes = number_in<std::uint64_t>(rest) << 10;
    if (word == "cores") answer.size.cores = number_in<int>(rest);
    if (line == "whole") answer.whole = true;
  }
  return answer;
}

std::vector<Missing> missing_on(const std::string& host, const HostAnswer& answer, const SshOptions& options) {
  std::vector<Missing> missing;
  if (!answer.lacks.empty()) {
    missing.push_back({fmt::format("{} has no {}", host, fmt::join(answer.lacks, ", ")),
                       "install the packages coreutils, tar and util-linux there"});
  }
  const std::string folder = options.node_folder.string();
  if (!answer.has_folder) {
    missing.push_back({fmt::format("{} has no folder {}", host, folder),
                       "make it there, or name another with driverOptions.node_folder"});
  } else if (!answer.folder_usable) {
    missing.push_back({fmt::format("{} cannot make folders in {} on {}", answer.user, folder, host),
                       "give it the right to, or name another with driverOptions.node_folder"});
  }
  if (!options.names_gyre) {
    add_missing_for_copy(host, answer, missing);
  } else if (answer.program.empty()) {
    missing.push_back({fmt::format("there is no {} on {}", options.gyre, host),
                       "install Gyre there, or name where it is with driverOptions.gyre"});
  } else if (!answer.program.starts_with("gyre ")) {
    missing.push_back(
        {fmt::format("{} on {} is not Gyre: asked for its version, it says '{}'", options.gyre, host, answer.program),
         "name Gyre's own program with driverOptions.gyre"});
  }
  return missing;
}

std::vector<Missing> hosts_named_twice(const std::map<std::string, HostAnswer>& answers) {
  std::map<std::string, std::vector<std::string>> names;
  for (const auto& [host, answer] : answers) {
    // Without a folder there is no place to compare.
    if (answer.has_folder && !answer.place.empty()) names[answer.place].push_back(host);
  }
  std::vector<Missing> missing;
  for (const auto& [place, hosts] : names) {
    if (hosts.size() < 2) continue;
    missing.push_back(
        {fmt::format("{} are names of one host, which can be one node of a job only", fmt::join(hosts, " and ")),
         "name it once in driverOptions.hosts"});
  }
  return missing;
}

CheckedHosts check_hosts(const SshOptions& options, const Client& client, const std::vector<std::string>& hosts) {
  struct Login {
    std::string host;
    Session session;
  };
  const fs::path input = options.folder / "check.sh";
  write_file_atomically(input, as_bytes(check_script(options)));
  CheckedHosts checked;
  std::list<Login> logins;
  std::map<std::string, HostAnswer> answers;
  for (const std::string& host : hosts) {
    const fs::path words = options.folder / fmt::format("check-{}", logins.size());
    logins.push_back({host, client.start(host, "sh -s", input, words)});
  }
  const Deadline deadline = Deadline::after(kLongestLogin);
  for (const Login& login : logins) {
    const auto status = login.session.process.wait(deadline);
    const HostAnswer answer = answer_in(text_of(login.session.out));
    if (answer.whole) {
      answers[login.host] = answer;
    } else if (!status) {
      checked.missing.push_back(
          no_login(login.host, fmt::format("it has not answered within {} s", kLongestLogin.count())));
    } else {
      checked.missing.push_back(no_login(login.host, last_words(login.session.error)));
    }
    std::error_code ignored;
    fs::remove(login.session.out, ignored);
    fs::remove(login.session.error, ignored);
  }
  fs::remove(input);
  for (const auto& [host, answer] : answers) {
    checked.sizes[host] = answer.size;
    for (Missing& each : missing_on(host, answer, options)) checked.missing.push_back(std::move(each));
  }
  for (Missing& each : hosts_named_twice(answers)) checked.missing.push_back(std::move(each));
  return checked;
}

}  // namespace gyre::jobs::drivers::ssh
