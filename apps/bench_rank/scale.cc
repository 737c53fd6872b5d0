// What a job of many ranks costs each of them: time, memory, descriptors and traffic, step by step.
#include <dirent.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "apps/bench_rank/benches.h"
#include "gyre/base/error.h"
#include "gyre/group/job.h"

namespace gyre::bench_rank {

namespace {

/// What has gone through this process's TCP sockets since they were opened.
struct Traffic {
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t packets_out = 0;  ///< With data.
  std::uint64_t packets_in = 0;

  Traffic& operator+=(const Traffic& other) {
    bytes_out += other.bytes_out;
    bytes_in += other.bytes_in;
    packets_out += other.packets_out;
    packets_in += other.packets_in;
    return *this;
  }
};

std::vector<int> open_descriptors() {
  std::vector<int> descriptors;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) throw system_error("/proc/self/fd", errno);
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    const int descriptor = std::atoi(entry->d_name);
    if (descriptor != ::dirfd(folder)) descriptors.push_back(descriptor);
  }
  ::closedir(folder);
  return descriptors;
}

/// The kernel counts what crosses each connection, so nothing in the engine has to.
Traffic traffic_so_far() {
  Traffic sum;
  for (const int descriptor : open_descriptors()) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_state == TCP_LISTEN) continue;
    // The kernel's structure is longer than the C library's.
    struct Counts {
      tcp_info known;
      std::uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
      std::uint32_t segs_out, segs_in, notsent_bytes, min_rtt, data_segs_in, data_segs_out;
    } counts{};
    length = sizeof(counts);
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &counts, &length) != 0) continue;
    sum += {counts.bytes_acked, counts.bytes_received, counts.data_segs_out, counts.data_segs_in};
  }
  return sum;
}

/// Kilobytes in the line of /proc/self/`file` that begins with `name`.
std::uint64_t kilobytes(const char* file, const std::string& name) {
  std::ifstream lines(std::filesystem::path("/proc/self") / file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size() + 1));
    std::uint64_t value = 0;
    words >> value;
    return value;
  }
  return 0;
}

nlohmann::json footprint() {
  return {{"rss_kb", kilobytes("status", "VmRSS")},      {"pss_kb", kilobytes("smaps_rollup", "Pss")},
          {"peak_rss_kb", kilobytes("status", "VmHWM")}, {"private_kb", kilobytes("smaps_rollup", "Private_Dirty")},
          {"threads", kilobytes("status", "Threads")},   {"descriptors", open_descriptors().size()}};
}

double one_sum(engine::Runtime& runtime, const std::string& name, std::size_t count = 1) {
  std::vector<float> value(count, static_cast<float>(runtime.rank() + 1));
  const auto start = SteadyClock::now();
  static_cast<void>(runtime.engine().run(sum_of(name, value)));
  const double took_us = microseconds_since(start);
  require_sum(runtime, value, name);
  return took_us;
}

nlohmann::json measure_steady(engine::Runtime& runtime, int rounds, std::size_t count = 1) {
  const std::string name = count == 1 ? "small" : "large";
  std::vector<double> times_us;
  const Traffic before = traffic_so_far();
  for (int round = 0; round < rounds; ++round) times_us.push_back(one_sum(runtime, name, count));
  const Traffic after = traffic_so_far();
  const auto each = [&](std::uint64_t now, std::uint64_t then) {
    return static_cast<double>(now - then) / static_cast<double>(rounds);
  };
  return {{"median_us", median(times_us)},
          {"bytes_out", each(after.bytes_out, before.bytes_out)},
          {"bytes_in", each(after.bytes_in, before.bytes_in)},
          {"packets_out", each(after.packets_out, before.packets_out)},
          {"packets_in", each(after.packets_in, before.packets_in)}};
}

/// CLOCK_MONOTONIC, which all processes of a machine share.
std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now().time_since_epoch()).count();
}

}  // namespace

nlohmann::json measure_scale(const ScaleBench& bench) {
  engine::RuntimeOptions options = engine::runtime_options_from_environment();
  const group::Job job = group::job_from_environment(Deadline::after(options.group.join_timeout));
  if (bench.ranks_per_host > 0) options.group.host_id = fmt::format("host{}", job.rank / bench.ranks_per_host);
  // Reading page tables takes time, in which a rank holds up the others; those whose figures nobody reads do not look.
  const bool reports = std::ranges::find(bench.reporters, job.rank) != bench.reporters.end();
  const auto look = [&] { return reports ? footprint() : nlohmann::json(); };
  const Logger logger = make_logger(fmt::format("rank {}", job.rank), options.log_level);
  nlohmann::json result{{"before", look()}};
  const auto seconds_since_start = [&] { return static_cast<double>(now_ns() - bench.started_ns) * 1e-9; };

  engine::Runtime runtime(group::join_group(job, options.group, logger), options);
  result["joined_s"] = seconds_since_start();
  result["joined"] = look();
  const Traffic joining = traffic_so_far();  // Of rank 0: over the connections of all members.
  result["joining"] = {{"bytes_out", joining.bytes_out}, {"bytes_in", joining.bytes_in}};
  result["first_us"] = one_sum(runtime, "first");
  result["summed_s"] = seconds_since_start();
  result["summed"] = look();
  one_sum(runtime, "small");
  meet(runtime);
  result["steady"] = measure_steady(runtime, bench.rounds);
  meet(runtime);
  result["after"] = look();
  if (bench.bytes > 0) {
    const std::size_t count = bench.bytes / sizeof(float);
    one_sum(runtime, "large", count);
    result["large"] = measure_steady(runtime, bench.rounds, count);
    meet(runtime);
  }

  std::vector<int> everybody(static_cast<std::size_t>(runtime.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  if (bench.subset) {
    const auto start = SteadyClock::now();
    const auto subset = runtime.subset(everybody, 1);
    meet(*subset);
    result["subset_us"] = microseconds_since(start);
    meet(runtime);
    result["with_subset"] = look();
    meet(runtime);
  }
  std::unique_ptr<group::PointToPoint> messages;
  if (bench.messages) {
    const nlohmann::json alone = look();
    const auto start = SteadyClock::now();
    messages = runtime.open_messages();
    result["messages_us"] = microseconds_since(start);
    meet(runtime);
    result["without_messages"] = alone;
    result["with_messages"] = look();
  }
  meet(runtime);
  result["rank"] = runtime.rank();
  const auto leaving = SteadyClock::now();
  runtime.shutdown();
  result["leave_us"] = microseconds_since(leaving);
  return result;
}

}  // namespace gyre::bench_rank
