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

/// A tensor of float32 rows of which a step touches few: only those travel. Row r is row r / servers of server
/// r % servers.
struct Table {
  std::uint64_t rows = 0;
  std::uint64_t columns = 1;
  std::uint32_t group = 0;

  bool operator==(const Table&) const = default;
};

/// How many rows of a table a server has.
std::uint64_t rows_of_server(const Table& table, int server, int servers);

/// What all workers and servers have to agree on before the first step. Workers say it, servers learn it from them.
struct TrainingSetup {
  std::vector<std::uint64_t> tensor_values{};  ///< How many float32 values each tensor has that is not a table.
  std::uint64_t names = 0;                     ///< checksum_of_names() of the tensors and tables.
  ShardOptions shards{};
  /// The optimizer's options for each group of tensors, as torch's parameter groups; all of one rule.
  std::vector<UpdateOptions> groups{UpdateOptions{}};
  std::vector<std::uint32_t> group_of_tensor{};  ///< Empty: all are in group 0.
  std::vector<Table> tables{};
  ConsistencyOptions consistency{};

  Rule rule() const { return groups.front().rule; }
  std::uint32_t group_of(std::size_t tensor) const { return group_of_tensor.empty() ? 0 : group_of_tensor.at(tensor); }
};

/// Tells tensors of equal sizes apart: workers that list them in different orders would add one to another.
std::uint64_t checksum_of_names(std::span<const std::string> names);

inline constexpr std::uint64_t kMostTableRows = std::uint64_t{1} << 32;

/// Error(kInvalidArgument) for what cannot work together, besides the errors of divide_into_blocks() and UpdateRule:
/// plain averaging is for kSync; tables are for kSgd without momentum and kAdagrad, both without weight decay, which
/// would change rows that no step touches.
void check(const TrainingSetup& setup);
/// That part of it which is about a group with tables.
void check_for_tables(const UpdateOptions& options);

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
