#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/params/ledger.h"
#include "gyre/params/shards.h"
#include "gyre/params/update_rule.h"

namespace gyre::params {

/// What all workers and servers have to agree on before the first step. Workers say it, servers learn it from them.
struct TrainingSetup {
  std::vector<std::uint64_t> tensor_values;  ///< How many float32 values each tensor has.
  std::uint64_t names = 0;                   ///< checksum_of_names() of the tensors.
  ShardOptions shards;
  UpdateOptions update;
  ConsistencyOptions consistency;
};

/// Tells tensors of equal sizes apart: workers that list them in different orders would add one to another.
std::uint64_t checksum_of_names(std::span<const std::string> names);

/// Error(kInvalidArgument) for what cannot work together, besides the errors of divide_into_blocks() and UpdateRule:
/// plain averaging, and replacement by an average, are for kSync.
void check(const TrainingSetup& setup);

Bytes encode(const TrainingSetup& setup);
/// Checked as well. Error(kCorruptData) where the bytes are not a setup.
TrainingSetup decode_setup(std::span<const std::byte> bytes);

/// Servers are the first ranks of the group, workers the ranks after them: rank 0, whose death ends the group, is a
/// server.
struct Layout {
  int workers = 1;
  int servers = 1;

  int rank_of_server(int server) const { return server; }
  int rank_of_worker(int worker) const { return servers + worker; }
  bool is_server(int rank) const { return rank < servers; }
  int worker_of(int rank) const { return rank - servers; }
  int size() const { return workers + servers; }
};

}  // namespace gyre::params
