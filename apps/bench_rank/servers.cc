// Steps through parameter servers, one after the other: push the gradients, pull their average.
#include "apps/bench_rank/servers.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/log.h"
#include "gyre/base/random.h"
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

/// Adagrad's first step goes by its rate, whatever the gradient, and the sums of its squares make later ones smaller.
constexpr params::UpdateOptions kTableOptions{.rule = params::Rule::kAdagrad, .rate = 0.01, .epsilon = 1e-10};

/// Distinct rows of this worker in this step, ascending: one from each of as many equal parts of the table.
params::Rows gradient_of_step(const ServerBench& bench, std::uint64_t worker, std::uint64_t step) {
  Random random(step, worker);
  params::Rows rows;
  const std::uint64_t every = bench.table_rows / bench.step_rows;
  for (std::uint64_t i = 0; i < bench.step_rows; ++i) rows.numbers.push_back(i * every + random.below(every));
  rows.values.assign(bench.step_rows * bench.columns, 1.0F);
  return rows;
}

/// A table of zeros, which all workers train.
class TableTraining {
 public:
  TableTraining(params::Client& client, const ServerBench& bench)
      : client_(client), bench_(bench), table_(bench.table_rows * bench.columns) {
    client.initialise(tensors(), tables());
  }

  /// Microseconds, without making the gradient, which a program's backward pass does.
  double step() {
    const auto worker = static_cast<std::uint64_t>(client_.worker());
    const params::Rows rows = gradient_of_step(bench_, worker, steps_++);
    if (!bench_.dense) {
      const auto start = SteadyClock::now();
      client_.step({}, {}, {}, {&rows, 1});
      const params::Rows& changed = client_.changed_rows().front();
      for (std::size_t i = 0; i < changed.numbers.size(); ++i) {
        std::ranges::copy(std::span(changed.values).subspan(i * bench_.columns, bench_.columns),
                          std::span(table_).subspan(changed.numbers[i] * bench_.columns, bench_.columns).begin());
      }
      return microseconds_since(start);
    }
    const std::span<float> memory = client_.memory().front();
    std::ranges::fill(memory, 0.0F);
    for (const std::uint64_t row : rows.numbers) {
      std::ranges::fill(memory.subspan(row * bench_.columns, bench_.columns), 1.0F);
    }
    const std::span<const float> gradients(memory);
    const auto start = SteadyClock::now();
    client_.step({&gradients, 1}, {&memory, 1});
    std::ranges::copy(memory, table_.begin());
    return microseconds_since(start);
  }

  std::uint64_t steps() const { return steps_; }

  /// The rows of worker 0 in the last step have been stepped on, and all others have not changed by more than all
  /// steps.
  void require_answers() const {
    const params::Rows last = gradient_of_step(bench_, 0, steps_ - 1);
    const auto most = static_cast<float>(kTableOptions.rate * static_cast<double>(steps_));
    std::uint64_t zeros = 0;
    for (const std::uint64_t row : last.numbers) zeros += table_[row * bench_.columns] == 0 ? 1 : 0;
    const bool fits = std::ranges::all_of(table_, [&](float value) { return value <= 0 && value >= -1.01F * most; });
    if (zeros == 0 && fits) return;
    throw Error(ErrorCode::kInternal, fmt::format("a wrong answer: {} rows have not been stepped on", zeros));
  }

 private:
  std::vector<std::span<float>> tensors() {
    return bench_.dense ? std::vector<std::span<float>>{table_} : std::vector<std::span<float>>{};
  }
  std::vector<std::span<float>> tables() {
    return bench_.dense ? std::vector<std::span<float>>{} : std::vector<std::span<float>>{table_};
  }

  params::Client& client_;
  const ServerBench& bench_;
  std::vector<float> table_;
  std::uint64_t steps_ = 0;
};

/// Of this process's network namespace, without the loopback: what a host's link has carried, headers included.
struct LinkBytes {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;
};

LinkBytes link_bytes() {
  constexpr int kFieldsBetween = 7;
  std::ifstream lines("/proc/self/net/dev");
  LinkBytes total;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).ends_with("lo")) continue;
    std::istringstream fields(line.substr(colon + 1));
    std::uint64_t received = 0;
    std::uint64_t sent = 0;
    fields >> received;
    for (int i = 0; i <= kFieldsBetween; ++i) fields >> sent;
    total.received += received;
    total.sent += sent;
  }
  return total;
}

void work_on_table(group::Group& group, const params::Layout& layout, const ServerBench& bench, const Effort& effort,
                   const std::filesystem::path& result) {
  params::TrainingSetup setup{.shards = {.servers = layout.servers}, .groups = {kTableOptions}};
  const std::uint64_t values = bench.table_rows * bench.columns;
  if (bench.dense) {
    setup.tensor_values = {values};
    setup.shards.values_per_block =
        collectives::server_block_bytes(values * sizeof(float), layout.servers) / sizeof(float);
  } else {
    setup.tables = {{.rows = bench.table_rows, .columns = bench.columns}};
  }
  params::Client client(group, layout, setup);
  TableTraining training(client, bench);
  training.step();
  const int rounds = agreed_rounds(client, training.step(), effort);
  std::vector<double> times;
  const LinkBytes before = link_bytes();
  for (int round = 0; round < rounds; ++round) times.push_back(training.step());
  const LinkBytes after = link_bytes();
  training.require_answers();
  if (client.worker() > 0) return;
  const auto a_step = [&](std::uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(rounds); };
  write_json(result, {{"step_us", median(std::move(times))},
                      {"sent_bytes", a_step(after.sent - before.sent)},
                      {"received_bytes", a_step(after.received - before.received)}});
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
  if (bench.table_rows == 0 && bench.bytes == 0) throw Error(ErrorCode::kInvalidArgument, "of how many bytes?");
  if (bench.table_rows > 0 && (bench.step_rows == 0 || bench.step_rows > bench.table_rows || bench.columns == 0)) {
    throw Error(ErrorCode::kInvalidArgument, "a step of a table needs some of its rows, and these some columns");
  }
  const params::Layout layout{.workers = job.size - bench.servers, .servers = bench.servers};
  const auto group = group::join_group(job, options.group, make_logger("bench", options.log_level));
  try {
    if (layout.is_server(group->rank())) {
      serve(*group, layout, server_results);
    } else {
      const auto work_of_bench = bench.table_rows > 0 ? work_on_table : work;
      work_of_bench(*group, layout, bench, effort, result);
    }
  } catch (const std::exception& error) {
    // The other ranks learn the reason, not only that this one is gone.
    group->abort(Error(ErrorCode::kAborted, fmt::format("rank {} failed: {}", group->rank(), error.what())));
    throw;
  }
}

}  // namespace gyre::bench_rank
