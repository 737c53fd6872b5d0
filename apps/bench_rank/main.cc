// gyre-bench-rank: one rank of the C++ rows of `gyre bench`, which starts it. Rank 0 writes one JSON object.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <thread>

#include "apps/bench_rank/benches.h"
#include "apps/bench_rank/servers.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace {

using namespace gyre;
using namespace gyre::bench_rank;

/// More than the caches hold, also where nothing rotates.
constexpr std::size_t kRotationBytes = std::size_t{64} << 20;
/// Of one rank; likewise.
constexpr std::size_t kBoundBytes = std::size_t{64} << 20;

struct Options {
  std::vector<std::size_t> sizes_bytes;
  std::vector<std::string> operations;
  std::string tensors;
  std::string result;
  std::string paths = "arena,tensor";
  ServerBench servers;
  std::string server_results;
  ScaleBench scale;
  Effort effort{.rotation_bytes = kRotationBytes};
};

Paths paths_of(const std::string& text) {
  return {.tensor = text.find("tensor") != std::string::npos, .arena = text.find("arena") != std::string::npos};
}

void add_options(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  CLI::App* allreduce = app.add_subcommand("allreduce", "One collective at a time, of each size");
  allreduce->add_option("--sizes", options.sizes_bytes, "In bytes, multiples of 4")->required()->delimiter(',');
  CLI::App* messages = app.add_subcommand("messages", "One message at a time between two ranks, of each of the sizes");
  messages->add_option("--sizes", options.sizes_bytes, "In bytes")->required()->delimiter(',');
  CLI::App* moves = app.add_subcommand("moves", "One operation that moves data at a time, of each of the sizes");
  moves->add_option("--sizes", options.sizes_bytes, "In bytes")->required()->delimiter(',');
  moves->add_option("--operations", options.operations, "allgather, alltoall, broadcast")->required()->delimiter(',');
  CLI::App* exchange = app.add_subcommand("exchange", "A model's gradients");
  exchange->add_option("--tensors", options.tensors, "JSON file: a list of {\"name\", \"shape\"}")->required();
  CLI::App* servers = app.add_subcommand("servers", "One tensor's gradients through parameter servers");
  servers->add_option("--servers", options.servers.servers, "How many of the ranks")->required();
  servers->add_option("--bytes", options.servers.bytes, "Of the gradients, a multiple of 4");
  servers->add_option("--table-rows", options.servers.table_rows, "Trains a table of rows instead");
  servers->add_option("--columns", options.servers.columns, "Of the table");
  servers->add_option("--step-rows", options.servers.step_rows, "Of the table, in each step of each worker");
  servers->add_flag("--dense", options.servers.dense, "The table's gradients are dense");
  servers->add_option("--block-bytes", options.servers.block_bytes, "At most, a multiple of 4 (0: as programs do)");
  servers->add_flag("--own-buffers", options.servers.own_buffers, "Gradients outside of the memory that servers map");
  servers->add_option("--server-results", options.server_results, "Where servers write theirs, each with its number")
      ->required();
  CLI::App* scale = app.add_subcommand("scale", "What a job of many ranks costs each of them");
  scale->add_option("--ranks-per-host", options.scale.ranks_per_host, "Plays hosts of so many ranks");
  scale->add_option("--rounds", options.scale.rounds, "Of the steady allreduce")->check(CLI::PositiveNumber);
  scale->add_option("--started-ns", options.scale.started_ns, "When the first rank was started, by CLOCK_MONOTONIC");
  scale->add_option("--bytes", options.scale.bytes, "Also an allreduce of so many, a multiple of 4");
  scale->add_flag("--subset", options.scale.subset, "Also makes a process set of all ranks");
  scale->add_flag("--messages", options.scale.messages, "Also opens messages between two ranks");
  scale->add_option("--reporters", options.scale.reporters, "Ranks that write RESULT.RANK")->delimiter(',');
  scale->add_option("--result", options.result, "Where the reporters write their figures")->required();
  for (CLI::App* verb : {allreduce, messages, moves, exchange, servers}) {
    verb->add_option("--result", options.result, "Where rank 0 writes its figures")->required();
    verb->add_option("--paths", options.paths, "arena, tensor or both")->capture_default_str();
    verb->add_option("--seconds", options.effort.seconds, "Per figure")->check(CLI::NonNegativeNumber);
    verb->add_option("--fewest-rounds", options.effort.fewest_rounds)->check(CLI::PositiveNumber);
    verb->add_option("--rotation-bytes", options.effort.rotation_bytes)->check(CLI::PositiveNumber);
  }
}

nlohmann::json measure(engine::Runtime& runtime, group::PointToPoint* messages, const CLI::App& app,
                       const Options& options) {
  if (app.got_subcommand("exchange")) {
    return measure_exchange(runtime, read_tensor_list(options.tensors), paths_of(options.paths), options.effort);
  }
  if (app.got_subcommand("moves")) {
    return measure_moves(runtime, options.operations, options.sizes_bytes, options.effort);
  }
  if (messages != nullptr) return measure_messages(runtime, *messages, options.sizes_bytes, options.effort);
  return measure_allreduce(runtime, options.sizes_bytes, paths_of(options.paths), options.effort);
}

/// What the host's memory allows, in bytes per second.
double measure_bound(const engine::Runtime& runtime, const CLI::App& app) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  // Of a pair of ranks one moves a message at a time.
  if (app.got_subcommand("messages"))
    return measure_copies(std::clamp(runtime.local_size() / 2, 1, cores), kBoundBytes);
  if (app.got_subcommand("moves")) return measure_copies(runtime.local_size(), kBoundBytes);
  return measure_sums(runtime.local_size(), std::min(runtime.local_size(), cores), kBoundBytes);
}

void run(const CLI::App& app, const Options& options) {
  if (app.got_subcommand("servers")) {
    run_with_servers(options.servers, options.effort, options.result, options.server_results);
    return;
  }
  if (app.got_subcommand("scale")) {
    const nlohmann::json result = measure_scale(options.scale);
    const int rank = result["rank"];
    if (std::ranges::find(options.scale.reporters, rank) == options.scale.reporters.end()) return;
    write_file_atomically(fmt::format("{}.{}", options.result, rank), as_bytes(result.dump()));
    return;
  }
  const auto runtime = engine::Runtime::start_from_environment();
  // They stay open until the ranks leave: the end of one rank's is a failure to the others before that.
  const auto messages = app.got_subcommand("messages") ? runtime->open_messages() : nullptr;
  try {
    nlohmann::json result = measure(*runtime, messages.get(), app, options);
    if (runtime->rank() == 0) {
      result["bound_bytes_per_second"] = measure_bound(*runtime, app);
      write_file_atomically(options.result, as_bytes(result.dump()));
    }
    // Nobody leaves while rank 0 still measures the bound: the others would be counted as idle load.
    meet(*runtime);
  } catch (const std::exception& error) {
    // The other ranks learn the reason, not only that this one is gone.
    runtime->group().abort(
        Error(ErrorCode::kAborted, fmt::format("rank {} failed: {}", runtime->rank(), error.what())));
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of the C++ rows of `gyre bench`, which starts it", "gyre-bench-rank");
  Options options;
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    run(app, options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gyre-bench-rank: {}\n", error.what());
    return 1;
  }
}
