#include "gyre/params/setup.h"

#include <fmt/format.h>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/params/internal/step_notes.h"

namespace gyre::params {

using internal::read_update;
using internal::write_update;

namespace {

constexpr std::uint8_t kVersion = 6;
constexpr int kMostBackupWorkers = 1 << 16;
constexpr std::uint32_t kMostTensors = 1 << 20;
constexpr std::uint64_t kMostValues = std::uint64_t{1} << 40;

constexpr std::uint32_t kMostGroups = 1 << 16;
constexpr std::uint32_t kMostTables = 1 << 16;

template <typename Value>
Value read_choice(ByteReader& reader, Value last, std::string_view what) {
  const std::uint8_t choice = reader.u8();
  if (choice > static_cast<std::uint8_t>(last)) {
    throw Error(ErrorCode::kCorruptData, fmt::format("a setup has {} {}", what, choice));
  }
  return static_cast<Value>(choice);
}

std::uint32_t read_count(ByteReader& reader, std::uint32_t most, std::string_view of) {
  const std::uint32_t count = reader.u32();
  if (count > most) throw Error(ErrorCode::kCorruptData, fmt::format("a setup has {} {}", count, of));
  return count;
}

void check_sizes(const TrainingSetup& setup) {
  std::uint64_t total = 0;
  const auto add = [&](std::uint64_t values) {
    if (values > kMostValues - total) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("the parameters have more than {} values", kMostValues));
    }
    total += values;
  };
  for (const std::uint64_t values : setup.tensor_values) add(values);
  for (const Table& table : setup.tables) {
    if (table.rows > kMostTableRows || table.columns == 0 || table.columns > kMostValues) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("a table of {} rows of {} values: at most {} rows are possible", table.rows,
                              table.columns, kMostTableRows));
    }
    add(table.rows * table.columns);
  }
  if (total == 0) throw Error(ErrorCode::kInvalidArgument, "there are no parameters to share among servers");
}

void check_groups(const TrainingSetup& setup) {
  bool fits = !setup.groups.empty() &&
              (setup.group_of_tensor.empty() || setup.group_of_tensor.size() == setup.tensor_values.size());
  for (const std::uint32_t group : setup.group_of_tensor) fits = fits && group < setup.groups.size();
  for (const Table& table : setup.tables) fits = fits && table.group < setup.groups.size();
  for (const UpdateOptions& group : setup.groups) fits = fits && group.rule == setup.groups.front().rule;
  if (!fits) throw Error(ErrorCode::kInvalidArgument, "the tensors are not all in groups of one optimizer");
  for (const UpdateOptions& group : setup.groups) static_cast<void>(UpdateRule(group));
  for (const Table& table : setup.tables) check_for_tables(setup.groups[table.group]);
}

}  // namespace

std::uint64_t checksum_of_names(std::span<const std::string> names) {
  std::uint64_t checksum = 0;
  for (const std::string& name : names) checksum = xxh3_64(std::as_bytes(std::span(name)), checksum);
  return checksum;
}

std::uint64_t rows_of_server(const Table& table, int server, int servers) {
  const auto first = static_cast<std::uint64_t>(server);
  const auto every = static_cast<std::uint64_t>(servers);
  return table.rows > first ? (table.rows - first - 1) / every + 1 : 0;
}

void check_for_tables(const UpdateOptions& options) {
  const bool fits = options.rule == Rule::kAdagrad || (options.rule == Rule::kSgd && options.momentum == 0);
  if (fits && options.weight_decay == 0) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("sparse gradients need SGD without momentum, or Adagrad, both without weight decay: '{}' with "
                  "momentum {} and weight decay {} changes rows that a step does not touch",
                  rule_name(options.rule), options.momentum, options.weight_decay));
}

void check(const TrainingSetup& setup) {
  check_groups(setup);
  check_sizes(setup);
  const Rule rule = setup.rule();
  if (setup.consistency.kind != Consistency::kSync && rule == Rule::kAverage) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' averages the workers' values, for which all of them must be there: without sync, "
                            "choose an optimizer that runs on the servers",
                            rule_name(rule)));
  }
  const int backup = setup.consistency.backup_workers;
  if (backup != 0 && (backup < 0 || backup > kMostBackupWorkers || setup.consistency.kind != Consistency::kSync ||
                      rule == Rule::kAverage)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} backup workers with '{}': they are for sync training with an optimizer on the servers, "
                            "which hold the parameters for the workers that come too late",
                            backup, rule_name(rule)));
  }
  static_cast<void>(divide_into_blocks(setup.tensor_values, setup.shards));
}

Bytes encode(const TrainingSetup& setup) {
  ByteWriter writer;
  writer.u8(kVersion);
  writer.u32(static_cast<std::uint32_t>(setup.tensor_values.size()));
  for (const std::uint64_t values : setup.tensor_values) writer.u64(values);
  writer.u64(setup.names);
  writer.u32(static_cast<std::uint32_t>(setup.shards.servers));
  writer.u64(setup.shards.values_per_block);
  writer.u32(static_cast<std::uint32_t>(setup.groups.size()));
  for (const UpdateOptions& group : setup.groups) write_update(writer, group);
  writer.u32(static_cast<std::uint32_t>(setup.group_of_tensor.size()));
  for (const std::uint32_t group : setup.group_of_tensor) writer.u32(group);
  writer.u32(static_cast<std::uint32_t>(setup.tables.size()));
  for (const Table& table : setup.tables) {
    writer.u64(table.rows);
    writer.u64(table.columns);
    writer.u32(table.group);
  }
  writer.u8(static_cast<std::uint8_t>(setup.consistency.kind));
  writer.u64(setup.consistency.staleness);
  writer.u32(static_cast<std::uint32_t>(setup.consistency.backup_workers));
  writer.u8(setup.consistency.survives_losses ? 1 : 0);
  writer.u8(setup.consistency.needs_first_worker ? 1 : 0);
  return writer.take();
}

TrainingSetup decode_setup(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "a setup of parameter servers");
  if (const std::uint8_t version = reader.u8(); version != kVersion) {
    throw Error(ErrorCode::kCorruptData, fmt::format("a setup of version {}; this server reads version {}: workers and "
                                                     "servers have to run the same version of Gyre",
                                                     version, kVersion));
  }
  TrainingSetup setup;
  for (std::uint32_t left = read_count(reader, kMostTensors, "tensors"); left > 0; --left) {
    setup.tensor_values.push_back(reader.u64());
  }
  setup.names = reader.u64();
  setup.shards.servers = static_cast<int>(reader.u32());
  setup.shards.values_per_block = reader.u64();
  setup.groups.clear();
  for (std::uint32_t left = read_count(reader, kMostGroups, "groups of tensors"); left > 0; --left) {
    setup.groups.push_back(read_update(reader));
  }
  for (std::uint32_t left = read_count(reader, kMostTensors, "tensors in groups"); left > 0; --left) {
    setup.group_of_tensor.push_back(reader.u32());
  }
  for (std::uint32_t left = read_count(reader, kMostTables, "tables"); left > 0; --left) {
    Table& table = setup.tables.emplace_back();
    table.rows = reader.u64();
    table.columns = reader.u64();
    table.group = reader.u32();
  }
  setup.consistency.kind = read_choice(reader, Consistency::kBounded, "consistency");
  setup.consistency.staleness = reader.u64();
  setup.consistency.backup_workers = static_cast<int>(reader.u32());
  setup.consistency.survives_losses = read_choice(reader, std::uint8_t{1}, "choice of what a loss means") != 0;
  setup.consistency.needs_first_worker = read_choice(reader, std::uint8_t{1}, "need of the first worker") != 0;
  if (reader.remaining() != 0) throw Error(ErrorCode::kCorruptData, "a setup of parameter servers is too long");
  check(setup);
  return setup;
}

}  // namespace gyre::params
