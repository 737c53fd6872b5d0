#include "gyre/jobs/drivers/slurm/internal/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>
#include <string_view>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/pipe.h"
#include "gyre/base/process.h"
#include "gyre/jobs/node/job_environment.h"

namespace gyre::jobs::drivers::slurm {

namespace {

constexpr std::chrono::seconds kLongestCommand{30};
constexpr std::size_t kMostOutputBytes = std::size_t{64} << 20;

constexpr std::array<std::string_view, 10> kOver = {"COMPLETED", "FAILED",    "CANCELLED", "TIMEOUT", "NODE_FAIL",
                                                    "PREEMPTED", "BOOT_FAIL", "DEADLINE",  "REVOKED", "OUT_OF_MEMORY"};
constexpr std::array<std::string_view, 4> kLosses = {"NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED"};
/// What the commands say when nobody has decided anything yet.
constexpr std::array<std::string_view, 7> kTemporary = {"Unable to contact slurm controller",
                                                        "Socket timed out",
                                                        "Connection refused",
                                                        "Connection timed out",
                                                        "temporarily unable to accept job",
                                                        "Transport endpoint is",
                                                        "Slurm backup controller in standby"};

/// Until both have ended; false when the deadline comes first.
bool read_all(std::array<pollfd, 2> ends, std::array<std::string, 2>& texts, Deadline deadline) {
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    if (::poll(ends.data(), ends.size(), deadline.poll_timeout_ms()) == 0) return false;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].revents == 0) continue;
      std::array<char, 16'384> bytes;
      const ssize_t count = ::read(ends[i].fd, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) ends[i].fd = -1;
      if (count > 0 && texts[i].size() < kMostOutputBytes)
        texts[i].append(bytes.data(), static_cast<std::size_t>(count));
    }
  }
  return true;
}

std::string trimmed(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace

bool is_over(const std::string& state) { return std::ranges::find(kOver, state) != kOver.end(); }
bool is_loss(const std::string& state) { return std::ranges::find(kLosses, state) != kLosses.end(); }

std::vector<ListedJob> parse_list(const std::string& text) {
  std::vector<ListedJob> jobs;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    ListedJob job;
    if (std::getline(words, job.id, '|') && std::getline(words, job.state, '|') &&
        std::getline(words, job.reason, '|') && std::getline(words, job.nodes, '|') &&
        std::getline(words, job.comment, '|') && std::getline(words, job.name)) {
      jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

std::string Commands::run(std::vector<std::string> command) const {
  const std::string name = command.front();
  Pipe out = make_pipe();
  Pipe error = make_pipe();
  SpawnOptions options;
  options.argv = std::move(command);
  options.environment = node::as_entries(environment_);
  options.stdout_fd = out.write.get();
  options.stderr_fd = error.write.get();
  options.folder = "/";
  const Process process = Process::spawn(options);
  out.write.reset();
  error.write.reset();
  std::array<std::string, 2> texts;
  const Deadline deadline = Deadline::after(kLongestCommand);
  const bool whole = read_all({{{out.read.get(), POLLIN, 0}, {error.read.get(), POLLIN, 0}}}, texts, deadline);
  const auto status = whole ? process.wait(deadline) : std::nullopt;
  if (!status) {
    throw Error(ErrorCode::kTimeout, fmt::format("{} has not answered within {} s", name, kLongestCommand.count()));
  }
  if (status->success()) return texts[0];
  const bool temporary = std::ranges::any_of(
      kTemporary, [&](std::string_view words) { return texts[1].find(words) != std::string::npos; });
  throw Error(temporary ? ErrorCode::kTimeout : ErrorCode::kInvalidArgument,
              fmt::format("{} ended with exit code {}: {}", name, status->shell_code(), trimmed(texts[1])));
}

std::string Commands::submit(const std::vector<std::string>& arguments) const {
  std::vector<std::string> command = {"sbatch", "--parsable"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::string answer = trimmed(run(std::move(command)));
  // "17", or "17;cluster".
  std::string id = answer.substr(0, answer.find(';'));
  if (id.empty() || !std::ranges::all_of(id, [](char c) { return c >= '0' && c <= '9'; })) {
    throw Error(ErrorCode::kProtocol, fmt::format("sbatch answered '{}', which is not the id of a job", answer));
  }
  return id;
}

std::vector<ListedJob> Commands::list() const {
  try {
    return parse_list(run({"squeue", "--me", "--states=all", "--noheader", std::string("--format=") + kListFormat}));
  } catch (const SpawnError&) {
    throw;
  } catch (const Error& error) {
    // It has no reason to refuse: whatever it says, it has not told what there is.
    throw Error(ErrorCode::kTimeout, error.what());
  }
}

void Commands::cancel(const std::string& id) const {
  try {
    run({"scancel", id});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;  // Else it is over.
  }
}

}  // namespace gyre::jobs::drivers::slurm
