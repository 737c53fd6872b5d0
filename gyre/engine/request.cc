#include "gyre/engine/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <limits>

#include "gyre/base/error.h"

namespace gyre::engine {

std::string_view operation_name(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllreduce: return "allreduce";
    case OperationKind::kBroadcast: return "broadcast";
    case OperationKind::kAllgather: return "allgather";
    case OperationKind::kReduceScatter: return "reducescatter";
    case OperationKind::kAllToAll: return "alltoall";
    case OperationKind::kBarrier: return "barrier";
  }
  return "unknown";
}

std::string phase_name(OperationKind kind) {
  std::string result(operation_name(kind));
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

std::string describe_tensor(DataType type, const Shape& shape) {
  return fmt::format("{} [{}]", collectives::name(type), fmt::join(shape, ", "));
}

std::size_t element_count(const Shape& shape) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() / 8;
  std::size_t count = 1;
  bool empty = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("shape [{}] has a negative dimension", fmt::join(shape, ", ")));
    }
    if (dimension == 0) {
      empty = true;
      continue;
    }
    if (count > kMost / static_cast<std::size_t>(dimension)) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("shape [{}] is too large", fmt::join(shape, ", ")));
    }
    count *= static_cast<std::size_t>(dimension);
  }
  return empty ? 0 : count;
}

}  // namespace gyre::engine
