#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "apps/bench_rank/measure.h"

namespace gyre::bench_rank {

/// An exchange of one tensor's gradients through parameter servers.
struct ServerBench {
  int servers = 1;              ///< How many of the job's ranks; the others are workers.
  std::size_t bytes = 0;        ///< Of one worker's gradients; a multiple of 4.
  bool own_buffers = false;     ///< Gradients are in buffers of the worker's, instead of Client::memory().
  std::size_t block_bytes = 0;  ///< Of a block at most; a multiple of 4. 0: as the training programs choose.

  // If there are rows: one table, which the servers step by Adagrad.
  std::uint64_t table_rows = 0;
  std::uint64_t columns = 64;
  std::uint64_t step_rows = 1000;  ///< Of each worker in each step.
  bool dense = false;              ///< It is trained as a dense tensor instead, in Client::memory().
};

/// Runs this process as a worker or a server of the job in its environment, without an engine. Worker 0 writes
/// {"step_us": median of a step, "steps": of each worker in all, "block_bytes"} to `result`, and server s
/// {"processor_seconds": of serving them} to `server_results` with "." and s appended. Of a table worker 0 writes
/// {"step_us", "sent_bytes", "received_bytes"}, the latter of its host's links in a step. The answers are checked.
void run_with_servers(const ServerBench& bench, const Effort& effort, const std::filesystem::path& result,
                      const std::filesystem::path& server_results);

}  // namespace gyre::bench_rank
