#include "gyre/engine/internal/plan/plan_agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"

namespace gyre::engine::internal {

namespace {

constexpr std::uint64_t kMostTensors = 1 << 24;

std::string joined(const std::vector<std::string>& description) {
  return fmt::format("{}", fmt::join(description, "\n"));
}

}  // namespace

std::uint64_t hash_description(const std::vector<std::string>& description) {
  return xxh3_64(as_bytes(joined(description)));
}

Bytes encode_proposal(const PlanProposal& proposal) {
  ByteWriter writer;
  writer.u64(proposal.description_hash);
  writer.u64(proposal.number);
  writer.u64(proposal.ready_order.size());
  for (const std::size_t index : proposal.ready_order) writer.u64(index);
  return writer.take();
}

std::vector<PlanProposal> decode_proposals(std::span<const std::byte> bytes, int size) {
  ByteReader reader(bytes, "the ranks' proposals for a plan");
  std::vector<PlanProposal> proposals(static_cast<std::size_t>(size));
  for (PlanProposal& proposal : proposals) {
    proposal.description_hash = reader.u64();
    proposal.number = reader.u64();
    const std::uint64_t count = reader.u64();
    if (count > kMostTensors) throw Error(ErrorCode::kProtocol, fmt::format("a plan of {} tensors", count));
    for (std::uint64_t i = 0; i < count; ++i) proposal.ready_order.push_back(reader.u64());
  }
  if (reader.remaining() != 0) throw Error(ErrorCode::kProtocol, "the ranks' proposals for a plan are too long");
  return proposals;
}

std::vector<std::size_t> fullest_order(const std::vector<PlanProposal>& proposals) {
  // The first of equals.
  return std::ranges::max_element(proposals, {}, [](const PlanProposal& one) { return one.ready_order.size(); })
      ->ready_order;
}

Bytes encode_description(const std::vector<std::string>& description) {
  const std::string text = joined(description);
  ByteWriter writer;
  writer.u64(text.size());
  writer.text(text);
  return writer.take();
}

std::vector<std::vector<std::string>> decode_descriptions(std::span<const std::byte> bytes, int size) {
  ByteReader reader(bytes, "the ranks' plans");
  std::vector<std::vector<std::string>> descriptions;
  for (int rank = 0; rank < size; ++rank) descriptions.push_back(split(reader.text(reader.u64()), '\n'));
  return descriptions;
}

void check_descriptions(const std::string& plan_name, const std::vector<std::vector<std::string>>& descriptions) {
  const std::vector<std::string>& lowest = descriptions[0];
  // Compared with rank 0's, so that every rank reports the same difference.
  for (std::size_t rank = 1; rank < descriptions.size(); ++rank) {
    const std::vector<std::string>& other = descriptions[rank];
    if (other == lowest) continue;
    const auto line_of = [](const std::vector<std::string>& lines, std::size_t line) {
      return line < lines.size() ? lines[line] : std::string("nothing more");
    };
    std::size_t line = 0;
    while (line < lowest.size() && line < other.size() && lowest[line] == other[line]) ++line;
    throw Error(ErrorCode::kMismatch,
                fmt::format("the ranks disagree about gradient exchange '{}': {} on rank 0; {} on rank {}", plan_name,
                            line_of(lowest, line), line_of(other, line), rank));
  }
}

}  // namespace gyre::engine::internal
