#include "gyre/jobs/drivers/local/internal/gpu_search.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <string_view>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/gpus.h"
#include "gyre/base/parse.h"
#include "gyre/base/pipe.h"
#include "gyre/base/process.h"
#include "gyre/jobs/node/job_environment.h"

namespace gyre::jobs::drivers::local::internal {

namespace {

constexpr const char* kProgram = "nvidia-smi";
constexpr std::size_t kMostOutputBytes = std::size_t{64} << 10;
constexpr std::size_t kMostQuotedBytes = 80;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") + 1 - first);
}

void add_once(std::vector<std::string>& names, std::string_view name) {
  if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
}

struct Answer {
  std::string text{};
  std::optional<ExitStatus> status{};  ///< Nothing: it did not end in time.
};

/// What the program prints, and how it ends.
Answer answer_of(const SpawnOptions& options, UniqueFd read_end, UniqueFd write_end, Deadline deadline) {
  const Process process = Process::spawn(options);
  write_end.reset();
  Answer answer;
  while (answer.text.size() < kMostOutputBytes) {
    pollfd wait{.fd = read_end.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, deadline.poll_timeout_ms()) <= 0) break;
    std::array<char, 1024> bytes;
    const ssize_t count = ::read(read_end.get(), bytes.data(), bytes.size());
    if (count <= 0) break;
    answer.text.append(bytes.data(), static_cast<std::size_t>(count));
  }
  read_end.reset();
  answer.status = process.wait(deadline);
  if (!answer.status) process.signal(SIGKILL);
  return answer;
}

/// Lines such as "0, GPU-5c9c1ba1-…". Error(kCorruptData) quotes one that is not.
std::vector<std::string> uuids_in(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& line : split(text, '\n')) {
    const std::string_view words = trimmed(line);
    if (words.empty()) continue;
    const std::size_t comma = words.find(',');
    const std::string_view name = comma == std::string_view::npos ? "" : trimmed(words.substr(comma + 1));
    const bool plain = name.find_first_of(", \t") == std::string_view::npos;
    if (!name.starts_with("GPU-") || !plain) {
      throw Error(ErrorCode::kCorruptData, fmt::format("'{}'", words.substr(0, kMostQuotedBytes)));
    }
    add_once(names, name);
  }
  if (names.empty()) throw Error(ErrorCode::kCorruptData, "nothing");
  return names;
}

FoundGpus ask_program(const node::Variables& environment, std::chrono::milliseconds limit) {
  const auto problem = [](const std::string& what) {
    return FoundGpus{.problem = fmt::format("{} {}", kProgram, what)};
  };
  Pipe pipe = make_pipe();
  SpawnOptions options;
  options.argv = {kProgram, "--query-gpu=index,uuid", "--format=csv,noheader"};
  options.environment = node::as_entries(environment);
  options.stdout_fd = pipe.write.get();
  options.stderr_fd = pipe.write.get();
  options.own_process_group = true;
  options.folder = "/";
  const Answer answer = answer_of(options, std::move(pipe.read), std::move(pipe.write), Deadline::after(limit));
  if (!answer.status) {
    return problem(fmt::format("has not ended within {:g} s", std::chrono::duration<double>(limit).count()));
  }
  if (!answer.status->success()) {
    const std::string line = answer.text.substr(0, answer.text.find('\n'));
    return problem(
        fmt::format("ended with exit code {}: '{}'", answer.status->shell_code(), line.substr(0, kMostQuotedBytes)));
  }
  try {
    return {.names = uuids_in(answer.text)};
  } catch (const Error& error) {
    return problem(fmt::format("printed {} in place of GPUs", error.what()));
  }
}

}  // namespace

FoundGpus find_machine_gpus(const node::Variables& environment, const std::filesystem::path& devices,
                            std::chrono::milliseconds limit) {
  if (const auto mask = environment.find("CUDA_VISIBLE_DEVICES"); mask != environment.end()) {
    return {.names = find_gpus(mask->second)};
  }
  const std::vector<std::string> numbers = find_gpus(std::nullopt, devices);
  if (numbers.empty()) return {};
  try {
    const auto path = environment.find("PATH");
    find_command(kProgram, path == environment.end() ? "" : path->second);
  } catch (const SpawnError&) {
    return {.names = numbers};
  }
  try {
    return ask_program(environment, limit);
  } catch (const Error& error) {
    return {.problem = error.what()};
  }
}

}  // namespace gyre::jobs::drivers::local::internal
