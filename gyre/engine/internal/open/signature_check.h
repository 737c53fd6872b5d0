#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/engine/internal/open/order.h"
#include "gyre/engine/request.h"

// What a rank says about an operation is checked against what it is about before anything in it is used as a size or
// an index: a caller's request (Error(kInvalidArgument)), a peer's announcement and the coordinator's order
// (Error(kProtocol)).

namespace gyre::engine::internal {

/// What no operation of a group of `size` ranks can be (shape, root); empty: nothing.
std::string signature_problem(const Signature& signature, int size);

/// Error(kProtocol) unless the signature that `ranks` have announced can be one of a group of `size` ranks.
void check_announced(const Announced& announced, const std::vector<int>& ranks, int size);

/// Error(kProtocol) unless an order can be one for a group of `size` ranks.
void check_order(const Order& order, int size);

/// Error(kProtocol) unless the order's sizes are those of an operation with this signature, which rank `rank` has
/// announced, or in which it takes part because it has joined (`contributes` is false then).
void check_sizes(const OrderedOperation& operation, const Signature& signature, int rank, int size, bool contributes);

/// Error(kProtocol) unless the operations, ordered as one bucket, can run as one collective.
void check_fusable(const Signature& first, const Signature& other, const std::string& name);

/// Whether two operations may share a bucket.
bool fusable(const Signature& a, const Signature& b);

/// Whether a tensor of this shape has a size, with so many rows from each rank instead of its own.
bool has_size(const Shape& shape, std::span<const std::int64_t> rows);

/// Error(kInvalidArgument): "allreduce 'loss': PROBLEM".
Error invalid_request(const Request& request, std::string_view problem);

/// Error(kInvalidArgument) for what is wrong on this rank alone.
void validate(const Request& request, int size);

}  // namespace gyre::engine::internal
