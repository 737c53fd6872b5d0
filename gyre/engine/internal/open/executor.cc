#include "gyre/engine/internal/open/executor.h"

#include <spdlog/logger.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/collectives/copy_bytes.h"
#include "gyre/collectives/select.h"

namespace gyre::engine::internal {

namespace {

/// Bytes of one index of the first dimension.
std::size_t row_bytes(const Signature& signature) {
  const Shape row(signature.shape.begin() + (signature.shape.empty() ? 0 : 1), signature.shape.end());
  return element_count(row) * collectives::size_of(signature.type);
}

Shape with_rows(Shape shape, std::int64_t rows) {
  if (shape.empty()) return {rows};
  shape[0] = rows;
  return shape;
}

std::vector<std::size_t> in_bytes(std::span<const std::int64_t> rows, std::size_t row_size_bytes) {
  std::vector<std::size_t> bytes;
  for (const std::int64_t count : rows) bytes.push_back(static_cast<std::size_t>(count) * row_size_bytes);
  return bytes;
}

void copy(std::span<std::byte> to, std::span<const std::byte> from) {
  GYRE_CHECK(to.size() == from.size());
  collectives::copy_bytes(to.data(), from.data(), from.size());
}

bool overlap(std::span<const std::byte> left, std::span<const std::byte> right) {
  return std::less<>()(left.data(), right.data() + right.size()) &&
         std::less<>()(right.data(), left.data() + left.size());
}

/// Where a result of `size_bytes` goes: the caller's memory where it brought as much apart from the input, else the
/// result's own.
std::span<std::byte> place_for(const Request& request, Result& result, std::size_t size_bytes) {
  const bool usable = request.output.size() == size_bytes && !overlap(request.output, request.input);
  if (!request.output.empty() && usable) return request.output;
  result.bytes.resize(size_bytes);
  return result.bytes;
}

}  // namespace

std::vector<std::int64_t> reduce_scatter_rows(std::int64_t rows, int size) {
  std::vector<std::int64_t> shares(static_cast<std::size_t>(size), rows / size);
  for (std::int64_t rank = 0; rank < rows % size; ++rank) ++shares[static_cast<std::size_t>(rank)];
  return shares;
}

collectives::Reduction reduction_of(const Signature& signature) {
  return {signature.type, signature.operation, signature.prescale, signature.postscale};
}

std::vector<Result> Executor::run(const Bucket& operations, const std::vector<Pending>& pending) {
  const Request& request = pending.front().request;
  std::vector<Result> results(pending.size());
  switch (request.signature.kind) {
    case OperationKind::kAllreduce:
      if (pending.size() == 1) {
        allreduce_alone(request);
      } else {
        allreduce_fused(pending);
      }
      break;
    case OperationKind::kBroadcast: results[0] = broadcast(request); break;
    case OperationKind::kAllgather: results[0] = allgather(request, operations[0]); break;
    case OperationKind::kReduceScatter: results[0] = reduce_scatter(request); break;
    case OperationKind::kAllToAll: results[0] = all_to_all(request, operations[0]); break;
    case OperationKind::kBarrier: collectives::barrier(lane_); break;
  }
  return results;
}

void Executor::log_choice(const Request& first, std::size_t size_bytes, collectives::Algorithm algorithm) const {
  if (!logger_->should_log(spdlog::level::debug)) return;
  logger_->debug("allreduce of {} from '{}' on: {} ({})", format_bytes(size_bytes), first.name,
                 collectives::algorithm_name(algorithm),
                 collectives::reason_for(algorithm, size_bytes, false, collectives::placement_of(lane_)));
}

void Executor::allreduce_alone(const Request& request) {
  copy_counted(request.output, request.input);
  timeline_.begin(request.name, "GYRE_ALLREDUCE");
  const auto algorithm = collectives::allreduce(lane_, request.output, reduction_of(request.signature), peer_mappings_,
                                                request.peer_mapped);
  timeline_.end(request.name);
  log_choice(request, request.output.size(), algorithm);
}

void Executor::copy_counted(std::span<std::byte> to, std::span<const std::byte> from) const {
  constexpr std::size_t kWorthTimingBytes = 64 * 1024;
  if (from.size() < kWorthTimingBytes) return copy(to, from);
  const CountedTime copying(lane_.counters().copying_ns);
  copy(to, from);
}

void Executor::allreduce_fused(const std::vector<Pending>& pending) {
  // Element-wise work does not care where one tensor ends and the next begins, so they stand without gaps.
  std::size_t total_bytes = 0;
  for (const Pending& one : pending) total_bytes += one.request.input.size();
  if (fusion_buffer_.size() < total_bytes) fusion_buffer_.resize(total_bytes);
  const auto buffer = std::span(fusion_buffer_).first(total_bytes);
  std::size_t offset = 0;
  for (const Pending& one : pending) {
    timeline_.begin(one.request.name, "MEMCPY_IN_FUSION_BUFFER");
    copy_counted(buffer.subspan(offset, one.request.input.size()), one.request.input);
    offset += one.request.input.size();
    timeline_.end(one.request.name);
    timeline_.begin(one.request.name, "GYRE_ALLREDUCE");
  }
  const auto algorithm = collectives::allreduce(lane_, buffer, reduction_of(pending.front().request.signature));
  log_choice(pending.front().request, total_bytes, algorithm);
  offset = 0;
  for (const Pending& one : pending) {
    timeline_.end(one.request.name);
    timeline_.begin(one.request.name, "MEMCPY_OUT_FUSION_BUFFER");
    copy_counted(one.request.output, buffer.subspan(offset, one.request.output.size()));
    offset += one.request.output.size();
    timeline_.end(one.request.name);
  }
}

Result Executor::broadcast(const Request& request) {
  if (lane_.rank() == request.signature.root) copy(request.output, request.input);
  timeline_.begin(request.name, "GYRE_BROADCAST");
  collectives::broadcast(lane_, request.output, request.signature.root);
  timeline_.end(request.name);
  return {};
}

Result Executor::allgather(const Request& request, const OrderedOperation& operation) {
  const std::size_t row_size_bytes = row_bytes(request.signature);
  const auto sizes_bytes = in_bytes(operation.sizes, row_size_bytes);
  const std::int64_t rows = std::accumulate(operation.sizes.begin(), operation.sizes.end(), std::int64_t{0});
  Result result;
  result.shape = with_rows(request.signature.shape, rows);
  timeline_.begin(request.name, "ALLOCATE_OUTPUT");
  const auto output = place_for(request, result, static_cast<std::size_t>(rows) * row_size_bytes);
  timeline_.end(request.name);
  timeline_.begin(request.name, "GYRE_ALLGATHER");
  collectives::allgather(lane_, request.input, sizes_bytes, output);
  timeline_.end(request.name);
  return result;
}

Result Executor::reduce_scatter(const Request& request) {
  const auto rows = reduce_scatter_rows(request.signature.shape.at(0), lane_.size());
  const auto sizes_bytes = in_bytes(rows, row_bytes(request.signature));
  Result result;
  result.shape = with_rows(request.signature.shape, rows[static_cast<std::size_t>(lane_.rank())]);
  const auto output = place_for(request, result, sizes_bytes[static_cast<std::size_t>(lane_.rank())]);
  timeline_.begin(request.name, "GYRE_REDUCESCATTER");
  collectives::reduce_scatter(lane_, request.input, sizes_bytes, output, reduction_of(request.signature));
  timeline_.end(request.name);
  return result;
}

Result Executor::all_to_all(const Request& request, const OrderedOperation& operation) {
  const auto size = static_cast<std::size_t>(lane_.size());
  const auto rank = static_cast<std::size_t>(lane_.rank());
  const std::size_t row_size_bytes = row_bytes(request.signature);
  std::vector<std::int64_t> sent(operation.sizes.begin() + static_cast<std::ptrdiff_t>(rank * size),
                                 operation.sizes.begin() + static_cast<std::ptrdiff_t>((rank + 1) * size));
  std::vector<std::int64_t> received;
  for (std::size_t other = 0; other < size; ++other) received.push_back(operation.sizes[other * size + rank]);
  const std::int64_t rows = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  Result result;
  result.shape = with_rows(request.signature.shape, rows);
  const auto output = place_for(request, result, static_cast<std::size_t>(rows) * row_size_bytes);
  timeline_.begin(request.name, "GYRE_ALLTOALL");
  collectives::all_to_all(lane_, request.input, in_bytes(sent, row_size_bytes), output,
                          in_bytes(received, row_size_bytes));
  timeline_.end(request.name);
  result.received_splits = std::move(received);
  return result;
}

}  // namespace gyre::engine::internal
