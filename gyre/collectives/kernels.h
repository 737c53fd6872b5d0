#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gyre/collectives/data_type.h"

// The arithmetic of the collectives: single-threaded loops over memory, compiled for several instruction sets of which
// the best one of the processor is taken at run time. All instruction sets give the same bits (the payload of a NaN
// apart). Pure but for their destination: any number of threads may call them on disjoint destinations.
//
// They compute by the defaults of IEEE 754 (round to nearest even, denormals kept) whatever the calling thread's
// floating-point state, and leave that state as it was: see base/floating_point.h.
//
// Common to all: pointers need no alignment; a buffer may be empty (count 0); counts are elements of `type`. A
// destination may be exactly one of the sources, and may not overlap one in any other way, nor another destination.
// Breaking these rules is a bug of the caller.

namespace gyre::collectives {

/// The numbers that a reduction multiplies and divides by, in the type in which it computes: see reduce().
struct Scaling {
  double prescale = 1.0;  ///< Multiplies each source before it is combined.
  double factor = 1.0;    ///< Multiplies the combined value; or
  double divisor = 1.0;   ///< divides it. Of floats one of the two is 1. Of integers it is a whole number.

  bool operator==(const Scaling&) const = default;
};

/// For a result of postscale · combined / ranks, of floats: a division by ranks / postscale where float32 holds that
/// number exactly, so that the result is rounded once; else a multiplication by postscale / ranks. Pure.
Scaling make_scaling(double prescale, double postscale, int ranks);

/// With x = prescale · s: destination[i] = factor · (((x0[i] ∘ x1[i]) ∘ x2[i]) ∘ … ∘ x(n-1)[i]) / divisor, strictly in
/// the order of the sources, so that the bits are fixed by that order alone. One pass: every source is read once, the
/// destination is written once. n >= 1; with n = 1 this scales and copies.
///
/// * Each operation on floats is rounded once, in float32 for float32, in float64 for float64. float16 and bfloat16 are
///   converted to float32, scaled and combined there, and rounded once at the end. The three numbers of `scaling` are
///   rounded to the type in which is computed. A number that is 1 changes nothing.
/// * min and max give NaN where any source is NaN; -0 is less than +0. Their order changes no bit (but a NaN's).
/// * Integers without scaling: sum and product wrap around in the type itself.
/// * Integers that are scaled: combined in a type that holds every sum, so that nothing wraps. prescale and factor /
///   divisor are applied to whole numbers exactly, if they are fractions of whole numbers (docs/guide/numbers.md says
///   which), otherwise in double; both truncate toward zero, and a result that does not fit the type becomes its
///   nearest value. prescale and factor are 0 or between 2^-53 and 2^32.
/// * Booleans: sum and max are "or", product and min are "and". No scaling.
/// * kAverage is not known here: callers pass kSum and a divisor.
void reduce(std::byte* destination, std::span<const std::byte* const> sources, std::size_t count, DataType type,
            ReduceOperation operation, const Scaling& scaling = {});

/// The same value written to every destination, still in one pass: the shared-memory allreduce, where a rank reduces
/// its slice of all ranks' buffers into all of them. Any destination may be any source. Buffers whose addresses are
/// equal modulo 4 KB make it several times slower on large counts: lay them out staggered. Stores go through the cache
/// on purpose: the lines were just read.
void reduce_to_many(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
                    std::size_t count, DataType type, ReduceOperation operation, const Scaling& scaling = {});

/// reduce() of 16-bit floats with the result in float32, not rounded: a part of a sum to which others will be added.
/// `half` is kFloat16 or kBfloat16. The destination is apart from the sources.
void reduce_to_float32(float* destination, std::span<const std::byte* const> sources, std::size_t count, DataType half,
                       ReduceOperation operation, const Scaling& scaling = {});

/// reduce() of integers with the result in another type: in kInt64 or kInt128, for partial sums that
/// internal::integer_sum_type() allows; or partial sums as `type`, whose result is the nearest value. The destination
/// is apart from the sources.
void reduce_integers_to(std::byte* destination, DataType result, std::span<const std::byte* const> sources,
                        std::size_t count, DataType type, ReduceOperation operation, const Scaling& scaling = {});

/// One hop of a ring: own[i] = factor · (arrived[i] ∘ own[i]) / divisor. What arrived is the partial sum of the ranks
/// before, so a chunk is summed in the order of its journey: fixed by the number of ranks, other than the rank order,
/// and computed by one rank only. Note that a journey would round float16 and bfloat16 at every hop and wraps integers
/// in their own type; a caller who wants reduce()'s wider sum converts first. Nothing is prescaled here.
void accumulate(std::byte* own, const std::byte* arrived, std::size_t count, DataType type, ReduceOperation operation,
                const Scaling& scaling = {});

/// buffer[i] = buffer[i], scaled and rounded as in reduce().
void scale_in_place(std::byte* buffer, std::size_t count, DataType type, const Scaling& scaling);

constexpr std::size_t kStreamingCopyThresholdBytes = std::size_t{4} << 20;

/// memcpy for buffers that are not read again soon: from kStreamingCopyThresholdBytes up it writes around the cache,
/// which saves reading the destination's lines first. The buffers may not overlap. When it returns the copy is visible
/// to others as an ordinary store would be.
void copy_streaming(std::byte* destination, const std::byte* source, std::size_t size_bytes);

/// The same for a buffer that another core reads next, at any size: it finds the bytes in memory, which its prefetcher
/// brings in faster than it gets them line by line out of the writer's cache. (Two cores that share an L3, 64 KB to
/// 16 MB through shared memory in pieces: 9 GB/s instead of 4.) The writer must not need the bytes again soon.
void copy_around_cache(std::byte* destination, const std::byte* source, std::size_t size_bytes);

/// Two copies in one pass. The first is written through the cache, the second around it; or both are written around it.
/// The three buffers may not overlap.
void copy_to_both(std::byte* through, std::byte* around, const std::byte* source, std::size_t size_bytes);
void copy_around_to_both(std::byte* first, std::byte* second, const std::byte* source, std::size_t size_bytes);

/// float32 to its 16-bit relatives and back, for compression on the wire. Rounds to nearest even; what is too large
/// becomes infinity; NaN stays NaN. `half` is kFloat16 or kBfloat16. No in-place use.
void narrow_float32(std::uint16_t* destination, const float* source, std::size_t count, DataType half);
void widen_to_float32(float* destination, const std::uint16_t* source, std::size_t count, DataType half);

/// What narrowing and widening again make of each value, in place.
void round_float32(float* values, std::size_t count, DataType half);

/// accumulate() of float32 with what arrived narrowed. In one pass, and with the bits that widen_to_float32 and
/// accumulate give one after the other.
void accumulate_narrowed(float* own, const std::uint16_t* arrived, std::size_t count, DataType half,
                         ReduceOperation operation, const Scaling& scaling = {});

}  // namespace gyre::collectives
