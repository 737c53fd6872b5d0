#include "gyre/launch/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "gyre/base/error.h"
#include "gyre/base/trace_file.h"
#include "gyre/launch/internal/host.h"
#include "gyre/launch/internal/supervisor.h"

namespace gyre::launch {

namespace {

/// Two pipes, a pidfd and a log file for each rank, and some for ourselves.
std::uint64_t open_files_needed(int ranks) { return std::uint64_t{4} * static_cast<std::uint64_t>(ranks) + 64; }

/// Only rank 0 writes it, some time after the start; every rank would then fail with it.
void ensure_can_write(const std::filesystem::path& file) {
  std::error_code none;
  const bool there = std::filesystem::exists(file, none);
  const std::filesystem::path place = there ? file : file.has_parent_path() ? file.parent_path() : ".";
  int failure = ::access(place.c_str(), there ? W_OK : W_OK | X_OK) == 0 ? 0 : errno;
  if (std::filesystem::is_directory(file, none)) failure = EISDIR;
  if (failure != 0) throw system_error(fmt::format("cannot write the timeline {}", file.string()), failure);
}

}  // namespace

LaunchResult launch(const LaunchOptions& options) {
  if (options.command.empty()) throw Error(ErrorCode::kInvalidArgument, "no command to run");
  if (options.ranks < 1 || options.ranks > kMostRanksPerHost) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} ranks were asked for; 1 to {} can run on one host", options.ranks, kMostRanksPerHost));
  }
  // Before log files are made for it.
  find_command(options.command.front(), variable_of(options.environment, "PATH"));
  ensure_open_files(open_files_needed(options.ranks));
  if (options.part && !options.part->key.empty() && options.part->key.size() != kJobKeyBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a job's key has {} bytes, not {}", kJobKeyBytes, options.part->key.size()));
  }
  if (options.timeline && (!options.part || options.part->first_rank == 0)) ensure_can_write(*options.timeline);
  LaunchResult result;
  for (int restarts = 0;; ++restarts) {
    Supervisor supervisor(options, restarts);
    result = supervisor.run();
    if (!result.first_failed_rank || restarts == options.max_restarts) break;
  }
  // Rank 0 may have been killed in the middle of a write; it may also never have begun.
  if (options.timeline) static_cast<void>(complete_trace_file(*options.timeline));
  return result;
}

}  // namespace gyre::launch
