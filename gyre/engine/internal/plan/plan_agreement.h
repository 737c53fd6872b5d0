#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gyre/base/bytes.h"

namespace gyre::engine::internal {

/// What each rank says of a plan so that all can agree on it: the hash of its description, the order in which its
/// backward produced the tensors, and how many plans it has begun to make before. Descriptions themselves travel only
/// when the hashes differ.
struct PlanProposal {
  std::uint64_t description_hash = 0;
  std::vector<std::size_t> ready_order;
  /// Rank 0's names the plan's channel: the ranks' threads may make their plans in different orders.
  std::uint64_t number = 0;
};

std::uint64_t hash_description(const std::vector<std::string>& description);

Bytes encode_proposal(const PlanProposal& proposal);
/// The proposals of all ranks, by rank, out of the concatenation of what encode_proposal() gave. Error(kProtocol,
/// kCorruptData) for damaged bytes.
std::vector<PlanProposal> decode_proposals(std::span<const std::byte> bytes, int size);

/// The longest one, of the first rank that has it: another's may lack tensors whose gradients it did not compute.
std::vector<std::size_t> fullest_order(const std::vector<PlanProposal>& proposals);

/// A contribution to an allgather of texts, and what the ranks contributed, split into lines.
Bytes encode_description(const std::vector<std::string>& description);
std::vector<std::vector<std::string>> decode_descriptions(std::span<const std::byte> bytes, int size);

/// Throws Error(kMismatch) with the first line in which a rank's description differs from rank 0's, both sides shown;
/// the same on all ranks. Returns when none does.
void check_descriptions(const std::string& plan_name, const std::vector<std::vector<std::string>>& descriptions);

}  // namespace gyre::engine::internal
