#include "gyre/launch/internal/metrics_intake.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/process_stat.h"

namespace gyre::launch {
namespace {

constexpr std::chrono::seconds kFirstLook{1};
constexpr std::chrono::seconds kLookInterval{5};

}  // namespace

std::optional<ProcessUsage> read_usage(pid_t process) {
  std::string line;
  if (!std::getline(std::ifstream(fmt::format("/proc/{}/stat", process)), line)) return std::nullopt;
  // Behind the program's name, which may hold anything: state, …; see proc(5).
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user_ticks = 0;
  double system_ticks = 0;
  fields >> user_ticks >> system_ticks;
  std::ifstream pages(fmt::format("/proc/{}/statm", process));
  double all_pages = 0;
  double resident_pages = 0;
  pages >> all_pages >> resident_pages;
  if (!fields || !pages || resident_pages == 0) return std::nullopt;  // Of a process that is ending.
  return ProcessUsage{.cpu_seconds = (user_ticks + system_ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK)),
                      .memory_bytes = resident_pages * static_cast<double>(::sysconf(_SC_PAGESIZE))};
}

MetricsIntake::MetricsIntake(Sink sink)
    : sink_(std::move(sink)),
      pipe_(metrics::make_pipe()),
      look_at_(SteadyClock::now() + kFirstLook),
      can_look_(proc_has_our_numbers()) {}

void MetricsIntake::started(int rank, pid_t process) {
  watched_[rank] = {.process = process, .cpu_seconds = 0, .since = SteadyClock::now()};
}

std::optional<SteadyClock::time_point> MetricsIntake::due_at() const {
  return can_look_ && !watched_.empty() ? std::optional(look_at_) : std::nullopt;
}

void MetricsIntake::advance() {
  if (pipe_.read_end) read_pipe();
  const auto now = SteadyClock::now();
  if (can_look_ && now >= look_at_) look_at_ranks(now);
}

void MetricsIntake::read_pipe() {
  std::array<std::byte, 65'536> buffer;
  try {
    for (;;) {
      const ssize_t count = ::read(pipe_.read_end.get(), buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;
      // Together, because each block of the file is a write: ranks that log a lot send hundreds in one buffer.
      std::unordered_set<std::string> names;
      std::vector<metrics::Sample> together;
      stream_.take(std::span(buffer).first(static_cast<std::size_t>(count)),
                   [&](std::span<const metrics::Sample> samples) {
                     for (metrics::Sample sample : samples) {
                       sample.name = *names.emplace(sample.name).first;
                       together.push_back(sample);
                     }
                   });
      if (together.empty()) continue;
      latest_step_ = together.back().step;
      sink_(together);
    }
  } catch (const Error& error) {
    words_ = fmt::format("gyre run: {}; no metrics of ranks are kept from here on", error.what());
    pipe_.read_end.reset();
  }
}

void MetricsIntake::look_at_ranks(SteadyClock::time_point now) {
  const std::int64_t time_us = wall_clock_us();
  std::vector<metrics::Sample> samples;
  for (auto& [rank, watched] : watched_) {
    const auto usage = read_usage(watched.process);
    if (!usage) continue;
    const double seconds = std::chrono::duration<double>(now - watched.since).count();
    const double cores = seconds > 0 ? (usage->cpu_seconds - watched.cpu_seconds) / seconds : 0;
    samples.push_back({"gyre/cpu_cores", rank, latest_step_, time_us, cores});
    samples.push_back({"gyre/memory_bytes", rank, latest_step_, time_us, usage->memory_bytes});
    watched.cpu_seconds = usage->cpu_seconds;
    watched.since = now;
  }
  if (!samples.empty()) sink_(samples);
  look_at_ = now + kLookInterval;
}

}  // namespace gyre::launch
