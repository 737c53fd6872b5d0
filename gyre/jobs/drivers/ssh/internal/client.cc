#include "gyre/jobs/drivers/ssh/internal/client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/node/job_environment.h"

namespace gyre::jobs::drivers::ssh {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLongestLook{20};

UniqueFd opened(const fs::path& file, int flags) {
  UniqueFd fd(::open(file.c_str(), flags | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!fd) throw system_error(fmt::format("cannot open {}", file.string()), errno);
  return fd;
}

Session spawned(std::vector<std::string> command, const std::vector<std::string>& environment, const fs::path& input,
                const fs::path& words) {
  const fs::path out = words.string() + ".out";
  const fs::path error = words.string() + ".err";
  const UniqueFd stdin_fd = opened(input, O_RDONLY);
  const UniqueFd stdout_fd = opened(out, O_WRONLY | O_CREAT | O_TRUNC);
  const UniqueFd stderr_fd = opened(error, O_WRONLY | O_CREAT | O_TRUNC);
  SpawnOptions options;
  options.argv = std::move(command);
  options.environment = environment;
  options.stdin_fd = stdin_fd.get();
  options.stdout_fd = stdout_fd.get();
  options.stderr_fd = stderr_fd.get();
  options.parent_death_signal = SIGTERM;
  options.folder = "/";
  return {Process::spawn(options), out, error};
}

/// A host's name as part of a file's.
std::string file_name(std::string host) {
  for (char& c : host) c = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' ? c : '_';
  return host;
}

}  // namespace

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::string last_words(const fs::path& file) {
  const std::string text = text_of(file);
  if (text.find("HOST IDENTIFICATION HAS CHANGED") != std::string::npos ||
      text.find("Host key verification failed") != std::string::npos) {
    return "its host key is not the one that the cluster names (host_keys)";
  }
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    while (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) last = line;
  }
  return last.empty() ? "ssh has ended without a word" : last;
}

Client::Client(const SshOptions& options) : options_(options), environment_(node::as_entries(options.environment)) {}

fs::path Client::known(const std::string& host) const { return options_.folder / ("known-" + file_name(host)); }

std::vector<std::string> Client::command_for(const std::string& host, const fs::path& known,
                                             const std::vector<std::string>& options) const {
  const std::string name = host.substr(host.find('@') == std::string::npos ? 0 : host.find('@') + 1);
  std::vector<std::string> command = {"ssh", "-T"};
  if (!options_.config.empty()) command.insert(command.end(), {"-F", options_.config.string()});
  std::vector<std::string> settings = {"BatchMode=yes",
                                       "UserKnownHostsFile=" + known.string(),
                                       "GlobalKnownHostsFile=/dev/null",
                                       "HashKnownHosts=no",
                                       "UpdateHostKeys=no",
                                       "HostKeyAlias=" + name,
                                       "ConnectTimeout=10",
                                       "ServerAliveInterval=5",
                                       "ServerAliveCountMax=3",
                                       "ForwardAgent=no",
                                       "ForwardX11=no",
                                       "ClearAllForwardings=yes",
                                       "ControlMaster=no",
                                       "ControlPath=none"};
  settings.insert(settings.end(), options.begin(), options.end());
  for (const std::string& setting : settings) command.insert(command.end(), {"-o", setting});
  command.insert(command.end(), {"--", host});
  return command;
}

Session Client::start(const std::string& host, const std::string& command, const fs::path& input,
                      const fs::path& words) const {
  std::vector<std::string> whole = command_for(host, known(host), {"StrictHostKeyChecking=yes"});
  whole.push_back(command);
  return spawned(std::move(whole), environment_, input, words);
}

/// The host shows its key before it is told who we are; that it refuses us then is all the same.
std::string Client::learn(const std::string& host, const fs::path& known) const {
  const fs::path words = known.string() + ".words";
  const std::vector<std::string> options = {"StrictHostKeyChecking=accept-new", "PreferredAuthentications=none"};
  std::vector<std::string> command = command_for(host, known, options);
  command.emplace_back("true");
  const Session asked = spawned(std::move(command), environment_, "/dev/null", words);
  asked.process.wait(Deadline::after(kLongestLook));
  std::error_code ignored;
  const bool shown = fs::exists(known, ignored) && fs::file_size(known, ignored) > 0;
  const std::string said = shown ? "" : last_words(asked.error);
  fs::remove(asked.out, ignored);
  fs::remove(asked.error, ignored);
  if (!shown) throw Error(ErrorCode::kTimeout, fmt::format("{}: {}", host, said));
  const Session listed = spawned({"ssh-keygen", "-l", "-f", known.string()}, environment_, "/dev/null", words);
  listed.process.wait(Deadline::after(kLongestLook));
  std::istringstream line(text_of(listed.out));
  std::string bits;
  std::string fingerprint;
  line >> bits >> fingerprint;
  fs::remove(listed.out, ignored);
  fs::remove(listed.error, ignored);
  return fingerprint;
}

std::string Client::fingerprint_of(const std::string& host) const {
  const fs::path seen = options_.folder / ("seen-" + file_name(host));
  std::error_code ignored;
  fs::remove(seen, ignored);
  std::string fingerprint = learn(host, seen);
  fs::remove(seen, ignored);
  return fingerprint;
}

void Client::pin(const std::string& host) {
  std::error_code ignored;
  if (fs::exists(known(host), ignored)) return;
  const fs::path seen = options_.folder / ("seen-" + file_name(host));
  fs::remove(seen, ignored);
  const std::string shown = learn(host, seen);
  const auto wanted = options_.host_keys.find(host);
  if (wanted == options_.host_keys.end() || wanted->second != shown) {
    fs::remove(seen, ignored);
    throw Error(ErrorCode::kAuthentication,
                fmt::format("{} shows the host key {}, and the cluster names {} (host_keys)", host, shown,
                            wanted == options_.host_keys.end() ? "none" : wanted->second));
  }
  fs::rename(seen, known(host));
}

}  // namespace gyre::jobs::drivers::ssh
