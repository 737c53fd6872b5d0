#include "gyre/params/setup.h"

#include <fmt/format.h>

#include <bit>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::params {
namespace {

constexpr std::uint8_t kVersion = 4;
constexpr int kMostBackupWorkers = 1 << 16;
constexpr std::uint32_t kMostTensors = 1 << 20;
constexpr std::uint64_t kMostValues = std::uint64_t{1} << 40;

enum Flag : std::uint8_t { kNesterov = 1, kKeras = 2, kCentered = 4, kAmsgrad = 8 };

void write_number(ByteWriter& writer, double number) { writer.u64(std::bit_cast<std::uint64_t>(number)); }
double read_number(ByteReader& reader) { return std::bit_cast<double>(reader.u64()); }

void write_update(ByteWriter& writer, const UpdateOptions& update) {
  writer.u8(static_cast<std::uint8_t>(update.rule));
  writer.u8(static_cast<std::uint8_t>((update.nesterov ? kNesterov : 0) | (update.keras_momentum ? kKeras : 0) |
                                      (update.centered ? kCentered : 0) | (update.amsgrad ? kAmsgrad : 0)));
  for (const double number : {update.momentum, update.dampening, update.weight_decay, update.alpha, update.beta1,
                              update.beta2, update.epsilon, update.lr_decay, update.initial_accumulator}) {
    write_number(writer, number);
  }
}

UpdateOptions read_update(ByteReader& reader) {
  UpdateOptions update;
  const std::uint8_t rule = reader.u8();
  if (rule >= kRules) throw Error(ErrorCode::kCorruptData, fmt::format("a setup has update rule {}", rule));
  update.rule = static_cast<Rule>(rule);
  const std::uint8_t flags = reader.u8();
  update.nesterov = (flags & kNesterov) != 0;
  update.keras_momentum = (flags & kKeras) != 0;
  update.centered = (flags & kCentered) != 0;
  update.amsgrad = (flags & kAmsgrad) != 0;
  for (double* number : {&update.momentum, &update.dampening, &update.weight_decay, &update.alpha, &update.beta1,
                         &update.beta2, &update.epsilon, &update.lr_decay, &update.initial_accumulator}) {
    *number = read_number(reader);
  }
  return update;
}

template <typename Value>
Value read_choice(ByteReader& reader, Value last, std::string_view what) {
  const std::uint8_t choice = reader.u8();
  if (choice > static_cast<std::uint8_t>(last)) {
    throw Error(ErrorCode::kCorruptData, fmt::format("a setup has {} {}", what, choice));
  }
  return static_cast<Value>(choice);
}

std::uint32_t read_tensor_count(ByteReader& reader) {
  const std::uint32_t count = reader.u32();
  if (count > kMostTensors) throw Error(ErrorCode::kCorruptData, fmt::format("a setup has {} tensors", count));
  return count;
}

}  // namespace

std::uint64_t checksum_of_names(std::span<const std::string> names) {
  std::uint64_t checksum = 0;
  for (const std::string& name : names) checksum = xxh3_64(std::as_bytes(std::span(name)), checksum);
  return checksum;
}

void check(const TrainingSetup& setup) {
  std::uint64_t total = 0;
  for (const std::uint64_t values : setup.tensor_values) {
    if (values > kMostValues - total) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("the parameters have more than {} values", kMostValues));
    }
    total += values;
  }
  const Rule rule = setup.update.rule;
  if (setup.consistency.kind != Consistency::kSync && (rule == Rule::kAverage || rule == Rule::kReplace)) {
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
  static_cast<void>(UpdateRule(setup.update));
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
  writer.u8(static_cast<std::uint8_t>(setup.shards.placement));
  writer.u32(static_cast<std::uint32_t>(setup.shards.server_of_tensor.size()));
  for (const int server : setup.shards.server_of_tensor) writer.u32(static_cast<std::uint32_t>(server));
  write_update(writer, setup.update);
  writer.u8(static_cast<std::uint8_t>(setup.consistency.kind));
  writer.u64(setup.consistency.staleness);
  writer.u32(static_cast<std::uint32_t>(setup.consistency.backup_workers));
  writer.u8(setup.consistency.survives_losses ? 1 : 0);
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
  for (std::uint32_t left = read_tensor_count(reader); left > 0; --left) setup.tensor_values.push_back(reader.u64());
  setup.names = reader.u64();
  setup.shards.servers = static_cast<int>(reader.u32());
  setup.shards.values_per_block = reader.u64();
  setup.shards.placement = read_choice(reader, Placement::kExplicit, "placement");
  for (std::uint32_t left = read_tensor_count(reader); left > 0; --left) {
    setup.shards.server_of_tensor.push_back(static_cast<int>(reader.u32()));
  }
  setup.update = read_update(reader);
  setup.consistency.kind = read_choice(reader, Consistency::kBounded, "consistency");
  setup.consistency.staleness = reader.u64();
  setup.consistency.backup_workers = static_cast<int>(reader.u32());
  setup.consistency.survives_losses = read_choice(reader, std::uint8_t{1}, "choice of what a loss means") != 0;
  if (reader.remaining() != 0) throw Error(ErrorCode::kCorruptData, "a setup of parameter servers is too long");
  check(setup);
  return setup;
}

}  // namespace gyre::params
