// Steps through parameter servers, one after the other: push the gradients, pull their average.
#include "apps/bench_rank/servers.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/log.h"
#include "gyre/collectives/exchange_cost.h"
#include "gyre/engine/runtime.h"
#include "gyre/group/group.h"
#include "gyre/group/job.h"
#include "gyre/params/client.h"
#include "gyre/params/server.h"

namespace gyre::bench_rank {

namespace {

/// Of this process, in user and kernel mode.
double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void write_json(const std::filesystem::path& path, const nlohmann::json& figures) {
  write_file_atomically(path, as_bytes(figures.dump()));
}

/// The client's memory, or buffers that rotate: gradients of this worker, and after a step their average.
class Gradients {
 public:
  Gradients(params::Client& client, const ServerBench& bench, const Effort& effort)
      : own_(static_cast<float>(client.worker() + 1)), average_(static_cast<float>(client.workers() + 1) / 2) {
    if (bench.own_buffers) {
      memory_.assign(buffers_for(bench.bytes, effort), std::vector<float>(bench.bytes / sizeof(float)));
      buffers_.assign(memory_.begin(), memory_.end());
    } else {
      buffers_.push_back(client.memory().front());
    }
  }

  std::size_t count() const { return buffers_.size(); }

  /// Microseconds.
  double step(params::Client& client, std::size_t round) {
    const std::span<float> results = buffers_[round % buffers_.size()];
    const std::span<const float> gradients(results);
    const auto start = SteadyClock::now();
    client.step({&gradients, 1}, {&results, 1});
    return microseconds_since(start);
  }

  /// A step with each buffer, whose averages are checked. Returns the last one's microseconds.
  double checked_steps(params::Client& client) {
    for (const std::span<float> buffer : buffers_) std::ranges::fill(buffer, own_);
    double last_us = 0;
    for (std::size_t round = 0; round < buffers_.size(); ++round) last_us = step(client, round);
    require_averages();
    return last_us;
  }

 private:
  void require_averages() const {
    for (const std::span<float> buffer : buffers_) {
      const auto wrong = std::ranges::find_if(buffer, [&](float value) { return value != average_; });
      if (wrong == buffer.end()) continue;
      throw Error(ErrorCode::kInternal, fmt::format("a wrong answer: element {} of {} is {} instead of {}",
                                                    wrong - buffer.begin(), buffer.size(), *wrong, average_));
    }
  }

  float own_;
  float average_;
  std::vector<std::vector<float>> memory_;
  std::vector<std::span<float>> buffers_;
};

/// As many on all workers; worker 0's opinion counts.
int agreed_rounds(params::Client& client, double once_us, const Effort& effort) {
  int rounds = rounds_for(once_us, effort);
  client.broadcast(std::as_writable_bytes(std::span(&rounds, 1)));
  return rounds;
}

void work(group::Group& group, const params::Layout& layout, const ServerBench& bench, const Effort& effort,
          const std::filesystem::path& result) {
  const std::size_t block_bytes =
      bench.block_bytes > 0 ? bench.block_bytes : collectives::server_block_bytes(bench.bytes, layout.servers);
  params::Client client(group, layout,
                        {.tensor_values = {bench.bytes / sizeof(float)},
                         .shards = {.servers = layout.servers, .values_per_block = block_bytes / sizeof(float)},
                         .groups = {{.rule = params::Rule::kAverage}},
                         .consistency = {}});
  Gradients gradients(client, bench, effort);
  const int rounds = agreed_rounds(client, gradients.checked_steps(client), effort);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) times.push_back(gradients.step(client, static_cast<std::size_t>(round)));
  gradients.checked_steps(client);
  if (client.worker() > 0) return;
  const std::size_t steps = 2 * gradients.count() + times.size();
  write_json(result, {{"step_us", median(std::move(times))}, {"steps", steps}, {"block_bytes", block_bytes}});
}

void serve(group::Group& group, const params::Layout& layout, const std::filesystem::path& results) {
  const double before = processor_seconds();
  static_cast<void>(params::serve(group, layout));
  const int server = group.rank() - layout.rank_of_server(0);
  write_json(fmt::format("{}.{}", results.string(), server), {{"processor_seconds", processor_seconds() - before}});
}

}  // namespace

void run_with_servers(const ServerBench& bench, const Effort& effort, const std::filesystem::path& result,
                      const std::filesystem::path& server_results) {
  const engine::RuntimeOptions options = engine::runtime_options_from_environment();
  const group::Job job = group::job_from_environment(Deadline::after(options.group.join_timeout));
  if (bench.servers < 1 || bench.servers >= job.size) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} of {} ranks cannot be servers: a server and a worker are needed at least",
                            bench.servers, job.size));
  }
  const params::Layout layout{.workers = job.size - bench.servers, .servers = bench.servers};
  const auto group = group::join_group(job, options.group, make_logger("bench", options.log_level));
  try {
    if (layout.is_server(group->rank())) {
      serve(*group, layout, server_results);
    } else {
      work(*group, layout, bench, effort, result);
    }
  } catch (const std::exception& error) {
    // The other ranks learn the reason, not only that this one is gone.
    group->abort(Error(ErrorCode::kAborted, fmt::format("rank {} failed: {}", group->rank(), error.what())));
    throw;
  }
}

}  // namespace gyre::bench_rank
