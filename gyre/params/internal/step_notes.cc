#include "gyre/params/internal/step_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "gyre/base/error.h"

namespace gyre::params::internal {
namespace {

enum Flag : std::uint8_t { kNesterov = 1, kCentered = 2, kAmsgrad = 4 };

/// One count for all lists, which are of known lengths or empty.
std::uint32_t read_length(ByteReader& reader, std::size_t length) {
  const std::uint32_t count = reader.u32();
  if (count != 0 && count != length) {
    throw Error(ErrorCode::kCorruptData, fmt::format("a step's notes are about {} of {}", count, length));
  }
  return count;
}

}  // namespace

void write_update(ByteWriter& writer, const UpdateOptions& update) {
  writer.u8(static_cast<std::uint8_t>(update.rule));
  writer.u8(static_cast<std::uint8_t>((update.nesterov ? kNesterov : 0) | (update.centered ? kCentered : 0) |
                                      (update.amsgrad ? kAmsgrad : 0)));
  for (const double number :
       {update.rate, update.momentum, update.dampening, update.weight_decay, update.alpha, update.beta1, update.beta2,
        update.epsilon, update.lr_decay, update.initial_accumulator}) {
    writer.u64(std::bit_cast<std::uint64_t>(number));
  }
}

UpdateOptions read_update(ByteReader& reader) {
  UpdateOptions update;
  const std::uint8_t rule = reader.u8();
  if (rule >= kRules) throw Error(ErrorCode::kCorruptData, fmt::format("there is no update rule {}", rule));
  update.rule = static_cast<Rule>(rule);
  const std::uint8_t flags = reader.u8();
  update.nesterov = (flags & kNesterov) != 0;
  update.centered = (flags & kCentered) != 0;
  update.amsgrad = (flags & kAmsgrad) != 0;
  for (double* number :
       {&update.rate, &update.momentum, &update.dampening, &update.weight_decay, &update.alpha, &update.beta1,
        &update.beta2, &update.epsilon, &update.lr_decay, &update.initial_accumulator}) {
    *number = std::bit_cast<double>(reader.u64());
  }
  return update;
}

Bytes encode(const StepNotes& notes) {
  constexpr std::size_t kBits = 8;
  ByteWriter writer;
  writer.u32(static_cast<std::uint32_t>(notes.groups.size()));
  for (const UpdateOptions& group : notes.groups) write_update(writer, group);
  writer.u32(static_cast<std::uint32_t>(notes.present.size()));
  for (std::size_t first = 0; first < notes.present.size(); first += kBits) {
    unsigned bits = 0;
    for (std::size_t i = first; i < std::min(first + kBits, notes.present.size()); ++i) {
      bits |= (notes.present[i] ? 1U : 0U) << (i - first);
    }
    writer.u8(static_cast<std::uint8_t>(bits));
  }
  writer.u32(static_cast<std::uint32_t>(notes.table_rows.size()));
  for (const std::uint32_t rows : notes.table_rows) writer.u32(rows);
  return writer.take();
}

StepNotes decode_notes(std::span<const std::byte> bytes, const TrainingSetup& setup) {
  constexpr std::size_t kBits = 8;
  ByteReader reader(bytes, "a step's notes");
  StepNotes notes;
  for (std::uint32_t left = read_length(reader, setup.groups.size()); left > 0; --left) {
    notes.groups.push_back(read_update(reader));
  }
  const std::uint32_t tensors = read_length(reader, setup.tensor_values.size() + setup.tables.size());
  unsigned bits = 0;
  for (std::uint32_t i = 0; i < tensors; ++i) {
    bits = i % kBits == 0 ? reader.u8() : bits >> 1U;
    notes.present.push_back((bits & 1U) != 0);
  }
  for (std::uint32_t left = read_length(reader, setup.tables.size()); left > 0; --left) {
    notes.table_rows.push_back(reader.u32());
  }
  if (reader.remaining() != 0) throw Error(ErrorCode::kCorruptData, "a step's notes are too long");
  return notes;
}

}  // namespace gyre::params::internal
