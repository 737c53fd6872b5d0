#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/params/setup.h"
#include "gyre/params/update_rule.h"

namespace gyre::params::internal {

void write_update(ByteWriter& writer, const UpdateOptions& update);
/// Error(kCorruptData).
UpdateOptions read_update(ByteReader& reader);

/// What a worker says about a step besides its gradients, to one server. A step without tables, whose options are those
/// of the step before and in which all tensors have gradients, has none.
struct StepNotes {
  std::vector<UpdateOptions> groups{};      ///< Empty: as in the step before; at first, as in the setup.
  std::vector<bool> present{};              ///< By tensor, then by table: which has a gradient. Empty: all.
  std::vector<std::uint32_t> table_rows{};  ///< By table: how many rows' gradients follow.

  bool is_empty() const { return groups.empty() && present.empty() && table_rows.empty(); }
  bool operator==(const StepNotes&) const = default;
};

Bytes encode(const StepNotes& notes);
/// Error(kCorruptData) for what is not for a job of this setup, and for options that cannot follow others.
StepNotes decode_notes(std::span<const std::byte> bytes, const TrainingSetup& setup);

}  // namespace gyre::params::internal
