#include "gyre/launch/internal/run_facts.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <optional>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/launch/host.h"
#include "gyre/launch/internal/shell_quoted.h"

namespace gyre::launch {
namespace {

constexpr std::chrono::milliseconds kLongestGit{2'000};
constexpr std::size_t kMostGitBytes = 60'000;
constexpr std::size_t kMostUntrackedBytes = 4'000;

/// Until the end of the stream, the limit or the deadline; nothing at the deadline.
std::optional<std::string> read_until(const UniqueFd& from, Deadline deadline) {
  std::string text;
  std::array<char, 4096> piece{};
  while (text.size() < kMostGitBytes) {
    pollfd ready{.fd = from.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, deadline.poll_timeout_ms()) == 0) return std::nullopt;
    const ssize_t count = ::read(from.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(count));
  }
  if (text.size() > kMostGitBytes) text.resize(kMostGitBytes);
  return text;
}

/// What `git ARGUMENTS` prints; nothing where it fails or takes long.
std::optional<std::string> ask_git(const std::vector<std::string>& environment, std::vector<std::string> arguments) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const UniqueFd nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  SpawnOptions options;
  options.argv = {"git", "--no-pager"};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.environment = environment;
  options.environment.emplace_back("GIT_OPTIONAL_LOCKS=0");
  options.stdout_fd = write_end.get();
  options.stderr_fd = nothing.get();
  options.own_process_group = true;
  try {
    Process git = Process::spawn(options);
    write_end.reset();
    const Deadline deadline = Deadline::after(kLongestGit);
    auto text = read_until(read_end, deadline);
    const bool cut = text && text->size() == kMostGitBytes;
    const auto status = text && !cut ? git.wait(deadline) : std::nullopt;
    git.signal(SIGKILL);
    return cut || (status && status->success()) ? text : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string utc(std::time_t time) { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time)); }

}  // namespace

std::vector<std::pair<std::string, std::string>> run_facts(const LaunchOptions& options, int ranks) {
  std::error_code gone;
  std::vector<std::pair<std::string, std::string>> facts;
  if (!options.metrics_for_service) {
    facts = {{"command", shell_quoted(options.command)}, {"folder", std::filesystem::current_path(gone).string()}};
  }
  const std::vector<std::pair<std::string, std::string>> others = {
      {"ranks", std::to_string(ranks - options.servers)},
      {"servers", std::to_string(options.servers)},
      {"host", host_name()},
      {"started", utc(std::time(nullptr))},
      {"gyre", GYRE_VERSION},
  };
  facts.insert(facts.end(), others.begin(), others.end());
  if (options.metrics_for_service) return facts;
  auto commit = ask_git(options.environment, {"rev-parse", "--verify", "HEAD"});
  if (!commit) return facts;
  commit->erase(commit->find_last_not_of('\n') + 1);
  facts.emplace_back("git_commit", *commit);
  const auto difference =
      ask_git(options.environment, {"diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD"});
  if (difference && !difference->empty()) facts.emplace_back("git_diff", *difference);
  // Names alone: they may be data.
  auto untracked = ask_git(options.environment, {"ls-files", "--others", "--exclude-standard", "--directory"});
  if (!untracked || untracked->empty()) return facts;
  if (untracked->size() > kMostUntrackedBytes) {
    untracked->resize(untracked->rfind('\n', kMostUntrackedBytes) + 1);
    *untracked += "…\n";
  }
  facts.emplace_back("git_untracked", *untracked);
  return facts;
}

}  // namespace gyre::launch
