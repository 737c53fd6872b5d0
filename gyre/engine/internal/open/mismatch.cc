#include "gyre/engine/internal/open/mismatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "gyre/engine/internal/failure.h"
#include "gyre/engine/internal/open/signature_check.h"

namespace gyre::engine::internal {

namespace {

/// Whether ranks may differ in the first dimension.
bool ragged(OperationKind kind) { return kind == OperationKind::kAllgather || kind == OperationKind::kAllToAll; }

bool same_shape(const Signature& a, const Signature& b) {
  if (!ragged(a.kind)) return a.shape == b.shape;
  return a.shape.size() == b.shape.size() && std::equal(a.shape.begin() + (a.shape.empty() ? 0 : 1), a.shape.end(),
                                                        b.shape.begin() + (b.shape.empty() ? 0 : 1));
}

bool reduces(OperationKind kind) { return kind == OperationKind::kAllreduce || kind == OperationKind::kReduceScatter; }

/// What differs between two ranks' announcements of one name, and each side's value; empty when nothing does.
struct Difference {
  std::string what;
  std::string first;
  std::string second;
};

/// "allreduce of float32 [3]".
std::string call_of(const Signature& signature) {
  if (signature.withdrawn()) return "a call that raised an error there";
  const std::string_view operation = operation_name(signature.kind);
  if (signature.kind == OperationKind::kBarrier) return std::string(operation);
  return fmt::format("{} of {}", operation, describe_tensor(signature.type, signature.shape));
}

std::optional<Difference> difference(const Signature& a, const Signature& b) {
  if (a.kind != b.kind || a.withdrawn() != b.withdrawn()) {
    return Difference{"the operation", call_of(a), call_of(b)};
  }
  if (a.kind == OperationKind::kBarrier) return std::nullopt;
  if (a.elsewhere != b.elsewhere) {
    const auto text = [](const Signature& s) {
      // The signature of one in host memory does not say which of these it is.
      return fmt::format("{} {}", call_of(s),
                         s.elsewhere ? "on a device, by the device's own library"
                                     : "in host memory, by Gyre (of a tensor on the CPU, or in a call with tensors of "
                                       "several devices)");
    };
    return Difference{"what exchanges the tensor", text(a), text(b)};
  }
  if (a.type != b.type) {
    return Difference{"the data type", call_of(a), call_of(b)};
  }
  if (!same_shape(a, b)) {
    return Difference{ragged(a.kind) ? "the shape (only the first dimension may differ)" : "the shape", call_of(a),
                      call_of(b)};
  }
  if (reduces(a.kind) && a.operation != b.operation) {
    return Difference{"the reduction", std::string(name(a.operation)), std::string(name(b.operation))};
  }
  if (reduces(a.kind) && (a.prescale != b.prescale || a.postscale != b.postscale)) {
    return Difference{"the scale factors", fmt::format("prescale {}, postscale {}", a.prescale, a.postscale),
                      fmt::format("prescale {}, postscale {}", b.prescale, b.postscale)};
  }
  if ((a.kind == OperationKind::kBroadcast || a.kind == OperationKind::kAllreduce) && a.root != b.root) {
    return Difference{"the root", fmt::format("root {}", a.root), fmt::format("root {}", b.root)};
  }
  if (a.group != b.group || a.group_size != b.group_size) {
    const auto text = [](const Signature& s) {
      return s.group.empty() ? std::string("alone") : fmt::format("in group '{}' of {}", s.group, s.group_size);
    };
    return Difference{"the group", text(a), text(b)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Mismatch> find_mismatch(const std::string& name, const Signatures& signatures,
                                      const std::vector<int>& rank_names) {
  const auto first = std::find_if(signatures.begin(), signatures.end(), [](const auto& one) { return one != nullptr; });
  for (std::size_t rank = 0; rank < signatures.size(); ++rank) {
    if (!signatures[rank] || signatures[rank] == *first) continue;
    const auto found = difference(**first, *signatures[rank]);
    if (!found) continue;
    std::vector<int> first_side;
    std::vector<int> second_side;
    for (std::size_t other = 0; other < signatures.size(); ++other) {
      if (!signatures[other]) continue;
      const int shown = rank_names.empty() ? static_cast<int>(other) : rank_names.at(other);
      const auto versus_first = difference(**first, *signatures[other]);
      if (!versus_first) first_side.push_back(shown);
      if (versus_first && versus_first->second == found->second) second_side.push_back(shown);
    }
    return Mismatch{
        fmt::format("the ranks disagree about {}: {} differs: {} on rank{} {}; {} on rank{} {}", shown_name(name),
                    found->what, found->first, first_side.size() > 1 ? "s" : "", fmt::join(first_side, ", "),
                    found->second, second_side.size() > 1 ? "s" : "", fmt::join(second_side, ", ")),
        {static_cast<int>(first - signatures.begin()), static_cast<int>(rank)}};
  }
  return std::nullopt;
}

}  // namespace gyre::engine::internal
